"""Reading the configuration files of other programs: what is understood, and what is refused, with its line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringhash.interop import EnvoyMaglev, EnvoyRing, HAProxyRing, KetamaRing, NginxRing, UHashPlacement
from ringhash.interop.config import PROGRAMS, ConfigError, read_config

pytest.importorskip("crossplane")
pytest.importorskip("yaml")
pytest.importorskip("xxhash")

NGINX = """\
http {
    upstream cache {
        hash $request_uri consistent;  # by path
        server 10.0.0.1:80 weight=2 max_fails=3 fail_timeout=5s max_conns=100;
        server unix:/run/app.sock;
        server "backend.example.com" down;
        zone cache 64k;
        keepalive 16;
    }
    upstream app { least_conn; server 10.0.0.9:80; }
    server { location / { proxy_pass http://cache; } }
}
"""
HAPROXY = """\
global
    maxconn 100
defaults
    mode http
    timeout connect 5s
    balance hdr(X-Key)
    hash-type consistent djb2 avalanche
frontend web
    bind :80
    default_backend app
backend app
    # the servers
    default-server inter 3s weight 10
    server s1 10.0.0.1:80 check id 101
    server s2 10.0.0.2:80 check weight 2 maxconn 30
    server s3 10.0.0.3:80 disabled
    server s4 10.0.0.4:80 backup
backend other
    balance roundrobin
    server s1 10.0.0.1:80
"""
TWEMPROXY = """\
alpha:
  listen: 127.0.0.1:22121
  hash: md5
  hash_tag: "{}"
  distribution: ketama
  auto_eject_hosts: true
  servers:
   - 127.0.0.1:6379:1 server1
   - 127.0.0.1:6380:2
   - /run/redis.sock:3
"""
ENVOY = """\
static_resources:
  clusters:
  - name: cache
    type: STATIC
    connect_timeout: 0.25s
    lb_policy: RING_HASH
    ring_hash_lb_config:
      minimum_ring_size: 2048
      hash_function: MURMUR_HASH_2
    load_assignment:
      cluster_name: cache
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: 10.0.0.1, port_value: 80}}}
          load_balancing_weight: 2
        - endpoint: {address: {socket_address: {address: 10.0.0.2, port_value: 80}}}
          metadata: {filter_metadata: {envoy.lb: {hash_key: pod-7}}}
        - endpoint: {address: {pipe: {path: /run/app.sock}}}
        - endpoint: {address: {socket_address: {address: 10.0.0.9, port_value: 80}}}
          health_status: UNHEALTHY
"""


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(text: str, name: str = "file.conf") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


# --- what is understood ---


def test_an_nginx_upstream(write) -> None:  # type: ignore[no-untyped-def]
    expected = NginxRing(
        {"10.0.0.1:80": 2, "unix:/run/app.sock": 1, "backend.example.com": 1}, down=["backend.example.com"]
    )
    assert read_config(write(NGINX), "nginx") == expected
    assert read_config(write(NGINX), "nginx", "cache") == expected


def test_an_nginx_upstream_alone_in_its_file_or_included(write) -> None:  # type: ignore[no-untyped-def]
    part = "upstream u {\n hash $arg_id consistent;\n server a:1;\n server b:1 weight=3;\n}\n"
    path = write(part, "upstream.conf")
    assert read_config(path, "nginx") == NginxRing({"a:1": 1, "b:1": 3})
    assert read_config(write(f"stream {{ include {path}; }}\n"), "nginx") == NginxRing({"a:1": 1, "b:1": 3})


def test_a_haproxy_backend(write) -> None:  # type: ignore[no-untyped-def]
    expected = HAProxyRing({"s1": 10, "s2": 2, "s3": 0, "s4": 0}, ids={"s1": 101}, hash="djb2")
    assert read_config(write(HAPROXY), "haproxy", "app") == expected


def test_defaults_of_haproxy_are_those_of_the_section_before(write) -> None:  # type: ignore[no-untyped-def]
    text = HAPROXY.replace("backend app", "defaults\n    balance uri\n    hash-type consistent\nbackend app")
    assert read_config(write(text), "haproxy", "app").to_dict()["hash"] == "sdbm"
    text = "defaults a\n balance uri\n hash-type consistent wt6\ndefaults b\nbackend x from a\n server s 1.1.1.1:1\n"
    ring = read_config(write(text), "haproxy")
    assert (ring.to_dict()["hash"], ring.to_dict()["avalanche"]) == ("wt6", False)


def test_a_twemproxy_pool(write) -> None:  # type: ignore[no-untyped-def]
    servers = {"127.0.0.1:6379 server1": 1, "127.0.0.1:6380": 2, "/run/redis.sock": 3}
    assert read_config(write(TWEMPROXY), "twemproxy") == KetamaRing(servers, "twemproxy", "md5", "{}")


def test_an_envoy_cluster(write) -> None:  # type: ignore[no-untyped-def]
    hosts = {"10.0.0.1:80": 2, "pod-7": 1, "/run/app.sock": 1}
    expected = EnvoyRing(hosts, 2048, hash="MURMUR_HASH_2")
    assert read_config(write(ENVOY), "envoy") == expected
    assert read_config(write(ENVOY), "envoy", "cache") == expected


def test_an_envoy_cluster_in_json_that_hashes_names_by_maglev(write) -> None:  # type: ignore[no-untyped-def]
    def host(name: str) -> dict[str, object]:
        address = {"socket_address": {"address": f"{name}.example", "port_value": 80}}
        return {"endpoint": {"hostname": name, "address": address}, "load_balancing_weight": {"value": 3}}

    cluster = {
        "name": "c",
        "type": "STRICT_DNS",
        "lb_policy": "MAGLEV",
        "maglev_lb_config": {"table_size": 251},
        "common_lb_config": {"consistent_hashing_lb_config": {"use_hostname_for_hashing": True}},
        "load_assignment": {"cluster_name": "c", "endpoints": [{"lb_endpoints": [host("a"), host("b")]}]},
    }
    expected = EnvoyMaglev({"a": 3, "b": 3}, 251)
    assert read_config(write(json.dumps(cluster)), "envoy") == expected
    assert read_config(write(json.dumps({"clusters": [cluster]}, indent=1)), "envoy") == expected


def test_a_list_of_servers(write) -> None:  # type: ignore[no-untyped-def]
    path = write("# servers\n10.0.0.1:11211 3\n\n10.0.0.2:11211  # the second\n", "servers.txt")
    servers = {"10.0.0.1:11211": 3, "10.0.0.2:11211": 1}
    for like in PROGRAMS:
        assert read_config(path, like).servers == servers
    assert read_config(path, "libketama") == KetamaRing(servers, "libketama")
    assert read_config(path, "uhashring-ketama") == UHashPlacement(servers, "ketama")


# --- what is refused ---


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        (NGINX.replace(" consistent", ""), 3, "remainder"),
        (NGINX.replace("keepalive 16", "random"), 8, "`random`"),
        (NGINX.replace("keepalive 16", "hash_again 3"), 8, "`hash_again` is not known"),
        (NGINX.replace("fail_timeout=5s", "backup"), 4, "`backup`"),
        (NGINX.replace("fail_timeout=5s", "slow_start=5s"), 4, "`slow_start=5s`"),
        (NGINX.replace("weight=2", "weight=0"), 4, "`weight=0`"),
        (NGINX.replace("unix:/run/app.sock", "10.0.0.1:80"), 5, "given twice"),
        (NGINX.replace("hash $request_uri consistent;", ""), 2, "no `hash KEY consistent;`"),
        ("upstream u { server a; }", 1, "goes round"),
        ("upstream u { hash $x consistent;\n", 1, "unexpected end of file"),
    ],
)
def test_nginx_refused(write, text: str, line: int, message: str) -> None:  # type: ignore[no-untyped-def]
    path = write(text)
    with pytest.raises(ConfigError) as caught:
        read_config(path, "nginx", "cache" if "cache" in text else None)
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("hdr(X-Key)", "roundrobin", 6, "does not place keys"),
        ("hdr(X-Key)", "source", 6, "bytes of the address"),
        ("consistent djb2", "map-based djb2", 7, "map-based"),
        ("djb2", "md5", 7, "'md5 avalanche' is not covered"),
        ("    # the servers", "    hash-balance-factor 150", 12, "hash-balance-factor"),
        ("    # the servers", "    stick on src", 12, "`stick` binds"),
        ("    # the servers", "    cookie SRV insert", 12, "`cookie` binds"),
        ("    # the servers", "    server-template s 1-3 a:80", 12, "write them out"),
        ("    # the servers", "    shuffle on", 12, "`shuffle` is not known"),
        ("maxconn 30", "agent-check", 15, "agent-check"),
        ("maxconn 30", "hash-key addr", 15, "hash-key"),
        ("maxconn 30", "turbo", 15, "`turbo` of a server is not known"),
        ("weight 2", "weight x", 15, "whole number"),
        ("weight 2", "weight 300", 11, "from 0 to 256"),
        ("id 101", "id 0", 11, "id of 's1'"),
        ("server s2", "server s1", 15, "given twice"),
    ],
)
def test_haproxy_refused(write, old: str, new: str, line: int, message: str) -> None:  # type: ignore[no-untyped-def]
    assert old in HAPROXY
    path = write(HAPROXY.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        read_config(path, "haproxy", "app")
    assert str(caught.value).startswith(f"{path}:{line}: ")
    assert message in str(caught.value)


def test_haproxy_without_hash_type_or_balance_is_refused(write) -> None:  # type: ignore[no-untyped-def]
    for gone in ("    hash-type consistent djb2 avalanche\n", "    balance hdr(X-Key)\n"):
        with pytest.raises(ConfigError, match="HAProxy's default"):
            read_config(write(HAPROXY.replace(gone, "")), "haproxy", "app")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("ketama", "modula", 5, "'modula' is not covered"),
        ("auto_eject_hosts: true", "shuffle: 1", 6, "`shuffle` is not known"),
        ("6380:2", "6380", 9, "host:port:weight"),
        ("127.0.0.1:6380:2", "127.0.0.1:6379:1 server1", 9, "given twice"),
        ("md5", "sha1", 1, "no hash 'sha1'"),
        ('"{}"', '"{"', 1, "two ASCII"),
        ("hash: md5", "hash: md5\n  hash: md5", 4, "given twice"),
        ("alpha:", "alpha: [", 3, "expected"),
    ],
)
def test_twemproxy_refused(write, old: str, new: str, line: int, message: str) -> None:  # type: ignore[no-untyped-def]
    path = write(TWEMPROXY.replace(old, new, 1))
    with pytest.raises(ConfigError) as caught:
        read_config(path, "twemproxy")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: ")


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("RING_HASH", "ROUND_ROBIN", 6, "ROUND_ROBIN"),
        ("connect_timeout: 0.25s", "lb_subset_config: {}", 5, "`lb_subset_config`"),
        ("connect_timeout: 0.25s", "load_balancing_policy: {}", 5, "`load_balancing_policy`"),
        (
            "connect_timeout: 0.25s",
            "common_lb_config: {locality_weighted_lb_config: {}}",
            5,
            "locality_weighted",
        ),
        (
            "connect_timeout: 0.25s",
            "common_lb_config: {consistent_hashing_lb_config: {hash_balance_factor: 120}}",
            5,
            "hash_balance_factor",
        ),
        ("minimum_ring_size: 2048", "minimum_ring_size: many", 8, "whole number"),
        ("minimum_ring_size", "smallest_ring_size", 8, "`smallest_ring_size`"),
        ("10.0.0.1", "cache.example.com", 14, "not in this file"),
        ("10.0.0.2", "10.0.0.1", 1, ""),
        ("      - lb_endpoints:", "      - lb_endpoints: []\n      - lb_endpoints:", 12, "one locality"),
        ("      - lb_endpoints:", "      - priority: 1\n        lb_endpoints:", 13, "priorities"),
        ("load_balancing_weight", "weight", 15, "`weight` of an endpoint"),
        ("MURMUR_HASH_2", "SHA", 3, "XX_HASH"),
    ],
)
def test_envoy_refused(write, old: str, new: str, line: int, message: str) -> None:  # type: ignore[no-untyped-def]
    assert old in ENVOY
    path = write(ENVOY.replace(old, new, 1))
    if not message:  # told apart by its hash_key: nothing to refuse
        assert len(read_config(path, "envoy")) == 3
        return
    with pytest.raises(ConfigError) as caught:
        read_config(path, "envoy")
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{path}:{line}: "), caught.value


def test_other_refusals(write) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="no program 'apache'"):
        read_config(write(""), "apache")
    with pytest.raises(ConfigError, match="no upstream 'x'; there are cache, app"):
        read_config(write(NGINX), "nginx", "x")
    two = NGINX.replace("least_conn;", "hash $x consistent;")
    with pytest.raises(ConfigError, match="say which upstream is meant; there are cache, app"):
        read_config(write(two), "nginx")
    with pytest.raises(ConfigError, match="is empty"):
        read_config(write(""), "twemproxy")
    with pytest.raises(ConfigError, match=r"servers.txt:2: the server 'a' is given twice"):
        read_config(write("a\na\n", "servers.txt"), "libketama")
    with pytest.raises(ConfigError, match=r"servers.txt:1: must be a name"):
        read_config(write("a b c\n", "servers.txt"), "libketama")
    with pytest.raises(ConfigError, match="has no servers"):
        read_config(write("\n", "servers.txt"), "libketama")
    with pytest.raises(FileNotFoundError):
        read_config("nowhere.conf", "nginx")


# --- files that are no such configuration ---

BACKEND = "defaults\n balance uri\n hash-type consistent\nbackend app\n server s1 10.0.0.1:80\n"
UPSTREAM = "upstream u {{ hash $x consistent; server 10.0.0.1:80 weight={}; }}\n"
DEEP = 2_000


@pytest.mark.parametrize("number", ["²", "٣", "9" * 5000, "-1", "1.5"])
@pytest.mark.parametrize(
    ("name", "like", "text", "line"),
    [
        ("servers.txt", "libmemcached", "a\nb {}\n", 2),
        ("servers.txt", "envoy", "a\nb {}\n", 2),
        ("a.cfg", "haproxy", BACKEND + " server s2 10.0.0.2:80 weight {}\n", 6),
        ("a.cfg", "haproxy", BACKEND + " server s2 10.0.0.2:80 id {}\n", 6),
        ("a.conf", "nginx", "\n" + UPSTREAM, 2),
        ("a.yml", "twemproxy", "p:\n servers:\n  - 10.0.0.1:80:{}\n", 3),
        ("a.yml", "envoy", ENVOY.replace("minimum_ring_size: 2048", "minimum_ring_size: {}"), 8),
    ],
)
def test_a_number_is_of_ascii_digits(write, number: str, name: str, like: str, text: str, line: int) -> None:  # type: ignore[no-untyped-def]
    path = write(text.replace("{}", number) if like == "envoy" else text.format(number), name)
    with pytest.raises(ConfigError) as caught:
        read_config(path, like)
    assert str(caught.value).startswith(f"{path}:{line}: "), caught.value
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("like", ["nginx", "envoy", "twemproxy"])
@pytest.mark.parametrize(
    "text",
    ["[" * DEEP + "]" * DEEP, "{a: " * DEEP + "1" + "}" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, "a {" * DEEP + "}" * DEEP],
    ids=["lists", "mappings", "json", "blocks"],
)  # fmt: skip
def test_brackets_in_brackets(write, like: str, text: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError):
        read_config(write(text), like)


def test_an_alias_within_itself(write) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_config(write("clusters: &a {clusters: *a}\n"), "envoy")
    with pytest.raises(ConfigError, match="nested too deeply"):
        read_config(
            write(ENVOY.replace("minimum_ring_size: 2048", "minimum_ring_size: &a {value: *a}")), "envoy"
        )


@pytest.mark.parametrize("like", ["envoy", "twemproxy", "libketama"])
def test_a_file_is_utf8(tmp_path: Path, like: str) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("a: 1\nbé: 2\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.txt:2: the byte 0xe9 is not UTF-8"):
        read_config(path, like)


def test_a_server_is_utf8_and_a_comment_need_not_be(tmp_path: Path) -> None:
    path = tmp_path / "latin.conf"
    path.write_bytes("# é\n".encode("latin-1") + UPSTREAM.format(1).encode())
    assert read_config(path, "nginx") == NginxRing(["10.0.0.1:80"])
    path.write_bytes("\nupstream u { hash $x consistent; server é:80; }".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.conf:2: the server .* is not UTF-8"):
        read_config(path, "nginx")
    path.write_bytes("# é\n".encode("latin-1") + BACKEND.encode())
    assert read_config(path, "haproxy") == HAProxyRing(["s1"])
    path.write_bytes(BACKEND.replace("s1", "é").encode("latin-1"))
    with pytest.raises(ConfigError, match=r"latin\.conf:\d+: "):
        read_config(path, "haproxy")


def test_a_file_of_another_program_is_refused_with_a_message(write) -> None:  # type: ignore[no-untyped-def]
    for text in (BACKEND, "upstream 'u"):
        with pytest.raises(ConfigError, match="is no nginx configuration: it ends within a directive"):
            read_config(write(text), "nginx")
    with pytest.raises(ConfigError, match="has no backend"):
        read_config(write(NGINX), "haproxy")
    for like, text in (("envoy", BACKEND), ("twemproxy", BACKEND), ("nginx", TWEMPROXY)):
        with pytest.raises(ConfigError) as caught:
            read_config(write(text), like)
        assert not str(caught.value).rstrip().endswith(":")


def test_what_a_file_holds_cannot_steer_a_terminal(write) -> None:  # type: ignore[no-untyped-def]
    for like, text in (
        ("nginx", UPSTREAM.format(1).replace("}", "\x1b[2J;}")),
        ("haproxy", BACKEND + " \x1b[2J x\n"),
        ("libketama", "a \x1b[2J\n"),
    ):
        with pytest.raises(ConfigError) as caught:
            read_config(write(text, "servers.txt" if like == "libketama" else "a.conf"), like)
        assert "\x1b" not in str(caught.value)
        assert r"\x1b[2J" in str(caught.value)
