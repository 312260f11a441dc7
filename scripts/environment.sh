# Sourced by scripts/demo, scripts/test and .ci/run. Makes .venv on first use, then leaves it alone.
#
#   prepare_environment [EXTRA]    EXTRA: an extra of pyproject.toml ("test", "site"), or nothing
#
# Nothing is installed, and no network is needed, while pyproject.toml, scripts/constraints.txt and the place of
# the repository stay the same; .venv/.installed remembers them.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv="$root/.venv"

say() { printf '%s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.13 python3 python; do
        if command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            printf '%s\n' "$candidate"
            return 0
        fi
    done
    say "error: this project needs Python 3.11 or newer, and no python3.11, python3.12, python3.13 or python3 of"
    say "       that age is on the PATH. Install one (for example: apt install python3.11 python3.11-venv) and retry."
    return 1
}

state_of_project() { { cat "$root/pyproject.toml" "$root/scripts/constraints.txt"; printf '%s\n' "$root"; } | cksum; }

prepare_environment() {
    local extra="${1:-}" state python
    state=$(state_of_project)
    if [ -x "$venv/bin/python" ] && "$venv/bin/python" -c '' 2>/dev/null &&
        grep -qxF -e "$state $extra" -e "$state test" "$venv/.installed" 2>/dev/null; then
        return 0
    fi
    if ! { [ -x "$venv/bin/python" ] && "$venv/bin/python" -m pip --version >/dev/null 2>&1; }; then
        python=$(find_python) || return 1
        say "Creating the virtual environment .venv with $("$python" --version 2>&1) ..."
        rm -rf "$venv"
        if ! "$python" -m venv "$venv" >&2; then
            rm -rf "$venv"
            say "error: '$python -m venv' failed. On Debian and Ubuntu the package python3-venv provides it."
            return 1
        fi
    fi
    say "Installing the project and the versions of scripts/constraints.txt into .venv (once; a few minutes) ..."
    pip_install() {
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-input \
            -c "$root/scripts/constraints.txt" "$@" >&2 </dev/null
    }
    # The pip of older Pythons takes twice as long. Python compiles a file when it is first imported;
    # most files never are.
    if ! { pip_install pip && pip_install --no-compile -e "$root${extra:+[$extra]}"; }; then
        say "error: pip could not install the project; its own message is above. A network is needed the first time."
        return 1
    fi
    printf '%s\n' "$state $extra" >"$venv/.installed"
    say "Ready. Later runs start at once and need no network."
}
