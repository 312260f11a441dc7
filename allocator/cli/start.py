"""The commands to begin with."""

from allocator.cli.configuration import FILE
from allocator.cli.parsing import TABLE, command, flag, option

START = (
    command(
        "demo",
        "a shipped cluster: MIP against greedy",
        """
        Decide the shipped snapshot of 12 jobs with greedy and with MIP, show where they differ and
        why, then simulate the shipped trace of 24 jobs under both.""",
        """
        allocator demo
        allocator demo --solver cpsat
        allocator demo --live              ten training jobs on eight pretended GPUs, run by the \
real controller
        """,
        "measure.demo:demo",
        option("--solver NAME", "auto (default), highs, cpsat, pulp", default="auto"),
        flag(
            "--live",
            "run ten small training jobs on eight pretended GPUs for about a minute; the same"
            " command goes on after a kill",
        ),
        flag(
            "--sabotage",
            "with --live: the policy hangs, breaks rules and crashes in turn; all jobs end",
        ),
        option(
            "--dir DIR",
            "with --live: folder of its state (default: one in the temporary folder)",
        ),
    ),
    command(
        "examples",
        "shipped inputs for every command",
        """
        Lists the examples that come with the allocator; their commands use a copy. Nothing that
        exists is overwritten.""",
        """
        allocator examples                       every example, and the command that uses it
        allocator examples deadlines             all commands that use it
        allocator examples deadlines --out .     copy it, here as ./deadlines
        """,
        "examples:examples",
        option("names NAME", "default: all", nargs="*"),
        option("--out DIR", "copy them into this folder"),
        TABLE,
    ),
    command(
        "doctor",
        "check this installation",
        "One line per check: ok or not ok. Exit code 0 if everything is ok, else 1.",
        """
        allocator doctor
        allocator doctor | grep -v ^ok
        """,
        "doctor:doctor",
    ),
    command(
        "config",
        "defaults of options: what counts here",
        f"""
        Show the values that options have if the command line does not give them: those of {FILE} in
        the working folder, else of $XDG_CONFIG_HOME/allocator/config.toml (~/.config/allocator),
        and of ALLOCATOR_QUEUE. The command line counts before the environment, and that before the
        file.""",
        """
        allocator config                         what counts here, and where it comes from
        allocator config --json
        """,
        "configuration:config",
    ),
    command(
        "completion",
        "completion of commands and options in a shell",
        """
        Print the script that completes commands, options and choices in a shell. In ~/.bashrc or
        ~/.zshrc: eval "$(allocator completion bash)", or zsh. For fish:
        ~/.config/fish/completions/allocator.fish.""",
        """
        allocator completion bash > completion.bash      then: source completion.bash
        allocator completion fish > completion.fish      then: source completion.fish
        """,
        "main:completion",
        option("shell", "the shell that reads the script", choices=("bash", "zsh", "fish")),
    ),
)
