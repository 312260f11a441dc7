"""`python -m allocator` = the command `allocator`."""

from allocator.cli.main import run

if __name__ == "__main__":
    run()
