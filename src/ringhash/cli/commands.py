"""The commands and their options."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any, TypeVar

import click

from ringhash.balance.sizing import check_points
from ringhash.cli.analyze import analyze
from ringhash.cli.cluster import named_weights, names_in, nodes_in, planned, read_cluster, write_plan
from ringhash.cli.compare import compare as compare_policies
from ringhash.cli.doctor import completion, doctor
from ringhash.cli.errors import InputError, refusals
from ringhash.cli.fleet import fleet
from ringhash.cli.handover import abort, apply, resume, show, status, storm
from ringhash.cli.keys import KeyFile
from ringhash.cli.leases import leases
from ringhash.cli.measure import Check, balance_of, check, compare, count, fair_shares, ideal
from ringhash.cli.progress import watched
from ringhash.placements.ring import MAX_POINTS_PER_NODE, Ring
from ringhash.plan import Plan
from ringhash.printable import printable
from ringhash.spans import Balance

__all__ = ["ringhash"]

Command = TypeVar("Command", bound=Callable[..., Any])

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def options(*decorators: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Make one decorator of several, in the order in which the help is to show them."""

    def decorate(command: Command) -> Command:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


def _needs_nodes(command: Command) -> Command:
    """Make --nodes required; `plan` can do without it."""
    for parameter in getattr(command, "__click_params__", []):
        if parameter.name == "nodes":
            parameter.required = True
    return command


nodes_options = options(
    click.option(
        "--nodes",
        metavar="LIST|FILE",
        help="Names as in a,b=2,c (=2 is a weight), or a JSON file: a name that ends in .json, or @FILE.",
    ),
    click.option("--weights", multiple=True, metavar="LIST", help="Weights as in a=2,b=0.5; 1 if not given."),
    click.option("--vnodes", type=int, metavar="N", help="Points of a node of weight 1.  [default: 160]"),
    click.option("--seed", type=int, metavar="N", help="Seed of the hash.  [default: 0]"),
    click.option(
        "--hash-tags/--no-hash-tags", default=None, help="Place {user:7}:cart by user:7 alone.  [default: no]"
    ),
)
cluster_options = options(_needs_nodes, nodes_options)
other_program_options = options(
    click.option(
        "--like",
        metavar="PROGRAM",
        help="Plan a change of nginx, haproxy, envoy, twemproxy and others; with --before and --after.",
    ),
    click.option("--before", metavar="FILE", help="With --like: the configuration as it is."),
    click.option("--after", metavar="FILE", help="With --like: the configuration as it will be."),
    click.option(
        "--block", metavar="NAME", help="With --like: which upstream, backend, cluster or pool, if several."
    ),
)
key_options = options(
    click.option(
        "--keys",
        "keys_file",
        metavar="FILE",
        help="Keys, one a line; - is stdin. Also .gz, or .parquet with --column.",
    ),
    click.option("--csv", "csv_file", metavar="FILE", help="Keys from a CSV file with a heading; - or .gz."),
    click.option(
        "--column", metavar="NAME", help="The column of the CSV or Parquet file that holds the keys."
    ),
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group(context_settings=CONTEXT, invoke_without_command=True)
@click.version_option(package_name="ringhash", message="%(prog)s %(version)s")
@click.pass_context
def ringhash(context: click.Context) -> None:
    """Consistent hashing: who owns a key, and exactly what a change moves."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


for command in (analyze, compare_policies, fleet, leases, doctor, completion):
    ringhash.add_command(command)


@ringhash.command()
@cluster_options
@key_options
@json_option
@click.argument("keys", nargs=-1, metavar="[KEY]...")
def owner(
    keys: tuple[str, ...],
    keys_file: str | None,
    csv_file: str | None,
    column: str | None,
    as_json: bool,
    **cluster: Any,
) -> None:
    """Say which node owns each key.

    Keys are arguments, or lines of a file or of stdin. A line of the answer is the owner, a tab
    and the key; with --json, an object.

    \b
      ringhash owner --nodes gw-1,gw-2,gw-3 user:7 user:8
      ringhash owner --nodes nodes.json <keys.txt | cut -f1 | sort | uniq -c
    """
    source = _source(keys_file, csv_file, column)
    if keys and source:
        raise click.UsageError("give keys as arguments or in a file, not both")
    if not keys and not source:
        if sys.stdin is None or sys.stdin.isatty():
            raise click.UsageError("no keys: give some, or a file with --keys, or pipe them in")
        source = KeyFile("-")
    _one_stdin(cluster["nodes"], source)
    ring = read_cluster(**cluster).ring
    if not len(ring):
        raise InputError("there are no nodes, so no key has an owner")
    if not source:
        _print_owners(ring, [list(map(os.fsencode, keys))], as_json=as_json)
        return
    with closing(watched(source, prints_lines=True)) as blocks:
        _print_owners(ring, blocks, as_json=as_json)


@ringhash.command()
@nodes_options
@click.option("--add", multiple=True, metavar="LIST|FILE", help="Nodes to add, as for --nodes.")
@click.option("--remove", multiple=True, metavar="LIST", help="Nodes to remove, as in a,b.")
@click.option("--reweight", multiple=True, metavar="LIST", help="New weights, as in a=2,b=0.5.")
@key_options
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Write the plan as JSON, for Plan.from_dict; - is stdout, without the table.",
)
@click.option("--all", "every_pair", is_flag=True, help="Show every pair of nodes, not the 20 largest.")
@other_program_options
@json_option
def plan(
    add: tuple[str, ...],
    remove: tuple[str, ...],
    reweight: tuple[str, ...],
    keys_file: str | None,
    csv_file: str | None,
    column: str | None,
    output: str | None,
    every_pair: bool,
    like: str | None,
    before: str | None,
    after: str | None,
    block: str | None,
    as_json: bool,
    **cluster: Any,
) -> None:
    """Show what a change moves, before it is made.

    The ranges are exact. With keys, each one is asked before and after and compared with the
    plan: if one moved otherwise, the exit status is 1.

    --like plans a change of another program's configuration. The answer also says how much of it is
    needless, what setting would avoid that, and what a ring of ringhash would move.

    \b
      ringhash plan --nodes gw-1,gw-2,gw-3 --add gw-4
      ringhash plan --nodes ring.json --remove gw-2 --keys keys.txt.gz
      ringhash plan --nodes ring.json --add gw-4 -o plan.json
      ringhash plan --like nginx --before old.conf --after new.conf
    """
    source = _source(keys_file, csv_file, column)
    if output == "-" and as_json:
        raise click.UsageError("-o - and --json both write to stdout: give one of them")
    if like is not None:
        given = [*add, *remove, *reweight, *(v for v in cluster.values() if v not in (None, ()))]
        if given or before is None or after is None:
            raise click.UsageError("--like takes --before and --after, and no nodes or changes")
        from ringhash.cli.like import plan_like  # noqa: PLC0415

        plan_like(like, before, after, block, source, output=output, every_pair=every_pair, as_json=as_json)
        return
    if before is not None or after is not None or block is not None:
        raise click.UsageError("--before, --after and --block are for another program: say which with --like")
    if cluster["nodes"] is None:
        raise click.UsageError("Missing option '--nodes'.")
    _one_stdin(cluster["nodes"], source, *add)
    now = read_cluster(**cluster)
    made, then = planned(
        now,
        [node for value in add for node in nodes_in(value)],
        names_in(remove),
        named_weights("--reweight", reweight),
    )
    least = ideal(now.ring, then)
    found = None
    if source:
        with closing(watched(source)) as blocks:
            found = check(made, now.ring, then, blocks)
    if output:
        write_plan(output, made)
    if output == "-":
        pass  # stdout holds the plan and nothing else
    elif as_json:
        _print_json(_plan_record(made, least, found, source))
    else:
        from ringhash.cli.render import Page  # noqa: PLC0415

        page = Page()
        page.plan(made, least, found, every_pair=every_pair)
        if found:
            page.line()
            page.check(found)
        page.left_out(source.empty if source else 0, "field" if column else "line")
    if found and found.otherwise:
        raise click.exceptions.Exit(1)


@ringhash.command()
@cluster_options
@click.option(
    "--compare",
    "numbers",
    metavar="LIST",
    help="Compare numbers of vnodes, as in 40,160; --nodes may be a number then.",
)
@key_options
@json_option
def balance(
    numbers: str | None,
    keys_file: str | None,
    csv_file: str | None,
    column: str | None,
    as_json: bool,
    **cluster: Any,
) -> None:
    """Show how evenly the nodes share the keys.

    By the arcs of the ring, which is exact, and with keys also as counted. A bar is what a node
    owns, its mark what the weight of the node asks for. With --compare, what each number of
    virtual nodes gives and costs.

    \b
      ringhash balance --nodes gw-1,gw-2,gw-3=2
      ringhash balance --nodes nodes.json --csv visits.csv.gz --column user
      ringhash balance --nodes 100 --compare 40,80,160,400
    """
    source = _source(keys_file, csv_file, column)
    _one_stdin(cluster["nodes"], source)
    if numbers is not None:
        _compare(numbers, source, cluster, as_json=as_json)
        return
    ring = read_cluster(**cluster).ring
    if not len(ring):
        raise InputError("there are no nodes to balance")
    counts = None
    if source:
        with closing(watched(source)) as blocks:
            counts = count(ring, blocks)
    if as_json:
        _print_json(_balance_record(ring, counts, source))
        return
    from ringhash.cli.render import Page  # noqa: PLC0415

    page = Page()
    page.balance(ring, counts)
    page.left_out(source.empty if source else 0, "field" if column else "line")


for command in (show, apply, status, abort, resume, storm):
    ringhash.add_command(command)


def _compare(numbers: str, source: KeyFile | None, cluster: dict[str, Any], *, as_json: bool) -> None:
    if cluster["vnodes"] is not None:
        raise click.UsageError("give --vnodes or --compare, not both")
    try:
        counts = [int(number) for number in numbers.split(",")]
    except ValueError:
        raise InputError(f"--compare takes numbers as in 40,80,160, not {numbers!r}") from None
    if (few := min(counts)) < 1:
        raise InputError(f"vnodes must be from 1 to {MAX_POINTS_PER_NODE}, not {few}")
    if cluster["nodes"].removeprefix("-").isdecimal():
        cluster |= {"nodes": _numbered(int(cluster["nodes"]), counts)}
    # The names and weights are wanted, not a ring: it gets as few points as there can be.
    ring = read_cluster(**cluster | {"vnodes": 1}).ring
    if not len(ring):
        raise InputError("there are no nodes to compare numbers of virtual nodes with")
    with refusals(), closing(watched(source) if source else _no_keys()) as blocks:
        rows = compare(ring, counts, blocks)
    if as_json:
        keys = source and {"total": source.taken, "empty": source.empty}
        _print_json({"nodes": len(ring), "vnodes": [row._asdict() for row in rows], "keys": keys})
        return
    from ringhash.cli.render import Page  # noqa: PLC0415

    page = Page()
    page.vnodes(rows, len(ring))
    page.left_out(source.empty if source else 0, "field" if source and source.column else "line")


def _numbered(count: int, vnodes: list[int]) -> str:
    if not count:
        raise InputError("a ring of no nodes has nothing to compare")
    if count < 0:
        raise InputError(f"there can be no {count} nodes: the number must be at least 1")
    with refusals():
        check_points(count, vnodes)
    return ",".join([f"node-{i}" for i in range(1, count + 1)])


def _no_keys() -> Generator[list[bytes], None, None]:
    yield from ()


# --- where keys come from ---


def _source(keys_file: str | None, csv_file: str | None, column: str | None) -> KeyFile | None:
    if csv_file is not None:
        if keys_file is not None:
            raise click.UsageError("give --keys or --csv, not both")
        if column is None:
            raise click.UsageError(
                f"--csv needs --column NAME, the column that holds the keys{_columns_of(csv_file)}"
            )
        return KeyFile(csv_file, column)
    if keys_file is None:
        if column is not None:
            raise click.UsageError("--column belongs to a file: give --csv FILE, or --keys FILE.parquet")
        return None
    if keys_file.endswith(".parquet"):
        return KeyFile(keys_file, column)
    if column is not None:
        raise click.UsageError(
            "--column belongs to a CSV or Parquet file: give --csv FILE, or --keys FILE.parquet"
        )
    if keys_file.removesuffix(".gz").endswith((".csv", ".tsv")):
        raise click.UsageError(
            f"{keys_file} is not a file of one key a line: give --csv {keys_file} --column NAME"
            + _columns_of(keys_file)
        )
    return KeyFile(keys_file)


def _columns_of(path: str) -> str:
    """The names of the columns, to choose from; nothing for a pipe, which can be read only once."""
    if path == "-":
        return ""
    return f"; its columns are {', '.join(KeyFile(path, '').heading())}"


def _one_stdin(nodes: str, source: KeyFile | None, *others: str) -> None:
    if [nodes, *others].count("@-") + (source is not None and source.path == "-") > 1:
        raise click.UsageError("stdin can be read only once")


# --- what is printed ---


def _print_owners(ring: Ring, blocks: Iterable[list[bytes]], *, as_json: bool) -> None:
    sys.stdout.flush()
    out = sys.stdout.buffer
    # The owner first: a key may hold tabs, and `cut -f1` is still right.
    starts = [name.encode() + b"\t" for name in ring.names]
    owners = [json.dumps(name) for name in ring.names]
    terminal = sys.stdout.isatty()
    if terminal:
        starts = [f"{printable(name)}\t".encode() for name in ring.names]
    for keys in blocks:
        indexes = ring.index_many(keys).tolist()
        pairs = zip(indexes, keys, strict=True)
        if as_json:
            text = "".join([f'{{"key": {_json_key(key)}, "owner": {owners[i]}}}\n' for i, key in pairs])
            out.write(text.encode())
        else:
            lines = [starts[i] + _as_bytes(key, escaped=terminal) for i, key in pairs]
            out.write(b"\n".join(lines) + b"\n")
        out.flush()  # a block is what a pipe has given: who waits for the answer gets it now


def _as_bytes(key: Any, *, escaped: bool) -> bytes:
    """A key as it is written: what stands in the file, but nothing that would control a terminal."""
    data = key if isinstance(key, bytes) else str(key).encode()
    return printable(data.decode("utf-8", "backslashreplace")).encode() if escaped else data


def _json_key(key: Any) -> str:
    if not isinstance(key, bytes):
        return json.dumps(key)
    try:
        return json.dumps(key.decode())
    except UnicodeDecodeError:
        return json.dumps({"hex": key.hex()})


def _print_json(record: dict[str, object]) -> None:
    click.echo(json.dumps(record, indent=2))


def _plan_record(made: Plan, least: float, found: Check | None, source: KeyFile | None) -> dict[str, object]:
    pairs = [
        {
            "source": pair[0],
            "target": pair[1],
            "ranges": len(moves),
            "share": moves.fraction,
            "keys": found and found.pairs[pair],
        }
        for pair, moves in made.pairs().items()
    ]
    return {
        "before": made.before,
        "after": made.after,
        "ranges": len(made),
        "fraction": made.fraction,
        "ideal": least,
        "moves": pairs,
        "keys": found
        and {
            "total": found.total,
            "empty": source and source.empty,
            "as_predicted": found.as_predicted,
            "otherwise": found.otherwise,
        },
    }


def _balance_record(ring: Ring, counts: Any, source: KeyFile | None) -> dict[str, object]:
    arcs, fair = ring.shares, fair_shares(ring)
    counted = None
    if counts is not None:
        counted = {
            "total": int(counts.sum()),
            "empty": source and source.empty,
            "balance": _balance_fields(balance_of(ring, counts)),
        }
    return {
        "nodes": [
            {
                "name": node.name,
                "weight": node.weight,
                "fair": fair[node.name],
                "share": arcs[node.name],
                "keys": None if counts is None else int(counts[i]),
            }
            for i, node in enumerate(ring.nodes)
        ],
        "balance": _balance_fields(ring.balance),
        "keys": counted,
    }


def _balance_fields(balance: Balance | None) -> dict[str, float] | None:
    return balance and balance._asdict()
