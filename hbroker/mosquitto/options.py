"""The options of mosquitto.conf(5) that have one answer, whatever their value.

Those whose value counts are in `listeners`, `access` and `conversion`.
"""

from __future__ import annotations

from typing import Final

from hbroker.mosquitto.conf_file import (
    LISTENER_OPTIONS,
    PER_LISTENER_OPTIONS,
    Configuration,
    Line,
)
from hbroker.mosquitto.outcome import Fate, Report

__all__ = ["report_others"]

_LOG: Final = "processes log to .hbroker/NAME/*.log; see `hbroker up --log-format` and `--log-level`"
_SAVED: Final = "every message that waits is on disk at once, in .hbroker/NAME (`hbroker up --state-dir`)"
_CIPHERS: Final = "TLS 1.2 and 1.3, with the cipher suites of the TLS library"
_NO_PLUGIN: Final = "there are no plugins; a Python class may decide instead: `hbroker gateway --policy`"
_OWN: Final = "a bridge carries what its `topics` say: access rules of MQTT clients are not for it"
_NO_PSK: Final = "there are no pre-shared keys: use certificates, or user names with passwords over TLS"

SAME: Final = {
    **dict.fromkeys(("log_dest", "log_type", "log_facility"), _LOG),
    **dict.fromkeys(("log_timestamp", "log_timestamp_format", "connection_messages"), _LOG),
    "websockets_log_level": _LOG,
    **dict.fromkeys(("persistence_location", "persistence_file"), _SAVED),
    **dict.fromkeys(("autosave_interval", "autosave_on_changes"), _SAVED),
    "per_listener_settings": "read: see the options that belong to a listener by it",
    "include_dir": "read, with all its files",
    "pid_file": "`hbroker status` shows the PIDs",
    "user": "processes run as the user who starts `hbroker up`, which need not be root",
    "set_tcp_nodelay": "always on",
    "sys_interval": "$SYS/broker is published every 10 s",
    "allow_duplicate_messages": "overlapping subscriptions are handled as MQTT 5 says",
    "auto_id_prefix": "client ids that a gateway assigns begin with `auto-`",
    "listener_auto_id_prefix": "client ids that a gateway assigns begin with `auto-`",
    **dict.fromkeys(("max_topic_alias", "max_topic_alias_broker"), "topic aliases are on"),
    "websockets_headers_size": "headers are bounded",
    "packet_buffer_size": "a packet takes memory only as its bytes arrive",
    **dict.fromkeys(("ciphers", "ciphers_tls1.3", "tls_version", "dhparamfile"), _CIPHERS),
    "bridge_tcp_keepalive": "MQTT's keep-alive notices a broken connection",
    **dict.fromkeys(("bridge_tls_version", "bridge_ciphers"), _CIPHERS),
    "bridge_max_topic_alias": "a bridge uses no topic aliases",
    "bridge_reload_type": "restart `hbroker up` to change a bridge",
    "local_clientid": "a bridge has its name here",
    "try_private": "a bridge of MQTT 3.1.1 says that it is one, if the broker takes that",
}
"""Options for which nothing needs to be done, each with the reason."""

MISSING: Final = {
    **dict.fromkeys(("auth_plugin", "plugin", "global_plugin", "plugin_load", "plugin_use"), _NO_PLUGIN),
    "auth_plugin_deny_special_chars": _NO_PLUGIN,
    **dict.fromkeys(("psk_file", "psk_hint"), _NO_PSK),
    **dict.fromkeys(
        ("tls_engine", "tls_keyform", "tls_engine_kpass_sha1"),
        "there are no TLS engines: keys are in PEM files",
    ),
    "allow_zero_length_clientid": "a client without a client id gets one",
    "clientid_prefixes": "every client id may connect; let `acl_file` or passwords decide, or names_client",
    "crlfile": "there are no revocation lists, so revoked certificates would be accepted: replace the CA",
    "use_subject_as_username": "the user name is the common name of the certificate (names_user: true)",
    "use_username_as_clientid": "give each client a certificate, and write names_client: true",
    "disable_client_cert_date_checks": "expired certificates are refused: issue new ones",
    "mount_point": "a workspace keeps clients of a listener apart (`workspace: NAME`); its topics are "
    "elsewhere",
    "bind_interface": "write the interface's address as the listener's",
    "max_qos": "every QoS is allowed",
    "http_dir": "a gateway serves no files: run a web server",
    "websockets_origin": "every origin is allowed: check it in a proxy in front of the gateway",
    "accept_protocol_versions": "MQTT 3.1, 3.1.1 and 5 are all accepted",
    "proxy_protocol_v2_require_tls": "check in the balancer that clients use TLS",
    "max_inflight_bytes": "only the number of messages in flight is bounded",
    "memory_limit": "the memory of queues has bounds: see `limits` in docs/topology.md",
    "queue_qos0_messages": "messages of QoS 0 do not wait for clients that are offline",
    "retain_available": "retained messages are on; forbid them to native clients by tokens",
    "retain_expiry_interval": "publish with a message expiry interval (MQTT 5)",
    "upgrade_outgoing_qos": "a message arrives at the lower QoS of publication and subscription",
    "check_retain_source": "the publisher of a retained message is not checked again later",
    **dict.fromkeys(("local_username", "local_password"), _OWN),
    "notification_topic": "it is $SYS/broker/connection/<client id>/state",
    "round_robin": "the addresses are tried in order, after each connection from the first on",
    "start_type": "a bridge is always connected",
    **dict.fromkeys(("threshold", "idle_timeout"), "a bridge is always connected"),
    "bridge_attempt_unsubscribe": "if you take a topic out, start the bridge once with clean_start: true",
    "bridge_bind_address": "the system chooses the address of the bridge",
    "bridge_max_packet_size": "a broker of MQTT 5 says how large packets may be",
    "bridge_outgoing_retain": "a broker of MQTT 5 says whether it takes retained messages",
    "bridge_session_expiry_interval": "the other broker keeps the session of a bridge for 7 days",
    "bridge_alpn": "a bridge offers no protocol by ALPN",
    "bridge_require_ocsp": "OCSP is not checked",
    "enable_control_api": "there is no $CONTROL; see `hbroker clients` and `hbroker kick`",
}
"""Options that hbroker cannot follow, each with what to do instead."""

LIKE_HERE: Final = {
    "start_type": "automatic",
    "round_robin": "false",
    "bridge_outgoing_retain": "true",
    "bridge_max_packet_size": "0",
    "bridge_require_ocsp": "false",
    "bridge_attempt_unsubscribe": "false",
    "allow_zero_length_clientid": "true",
    "max_qos": "2",
    "queue_qos0_messages": "false",
    "retain_available": "true",
    "upgrade_outgoing_qos": "false",
    "check_retain_source": "false",
    "use_subject_as_username": "false",
    "use_username_as_clientid": "false",
    "auth_plugin_deny_special_chars": "false",
    "disable_client_cert_date_checks": "false",
    "tls_keyform": "pem",
    "max_inflight_bytes": "0",
    "memory_limit": "0",
}
"""The values of options in `MISSING` with which mosquitto does what hbroker does."""


def report_others(configuration: Configuration, report: Report) -> None:
    """Notes what becomes of all lines of which nothing was noted yet."""
    for section in configuration.sections():
        for line in section.lines:
            last = section.last(line.option)
            if report.has(line):
                continue
            if last is not None and last is not line and report.has(last):
                report.same(line, f"{last.place} has the option again, and counts")
            else:
                report.note(line, *_fate(line))


def _fate(line: Line) -> tuple[Fate, str]:
    if line.option in SAME:
        return Fate.SAME, SAME[line.option]
    if line.value.lower() == LIKE_HERE.get(line.option):
        return Fate.SAME, "hbroker does so, too"
    if line.option in MISSING:
        return Fate.MISSING, MISSING[line.option]
    if line.option.startswith(("auth_opt_", "plugin_opt_")):
        return Fate.MISSING, _NO_PLUGIN
    if line.option in LISTENER_OPTIONS | PER_LISTENER_OPTIONS:
        return Fate.MISSING, "no listener has it: `port` opens the default listener, and `listener` others"
    return Fate.UNKNOWN, "mosquitto.conf(5) has no such option here: is it misspelt?"
