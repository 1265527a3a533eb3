"""Options behind --, which another program gets as they are. (argparse takes them for its own where a script has other
positional arguments, or always: that differs between versions of Python.)"""

import sys


def parse_args(parser, program):
    """The arguments before --; what is behind it becomes their `options`, those of `program`."""
    parser.usage = parser.format_usage().removeprefix("usage: ").rstrip().replace("%", "%%") + f" [-- options of {program}]"
    given = sys.argv[1:]
    at = given.index("--") if "--" in given else len(given)
    args = parser.parse_args(given[:at])
    args.options = given[at + 1:]
    return args
