"""The packets of the wire protocol, as scripts/proto.py generates them from proto/hbroker/v1/packet.proto."""
