"""The policy of the gateway under test. It refuses the user `mallory` and the topics `denied/#`, and has
the authentication method `echo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbroker.config import AccessSettings
from hbroker.gateway.access import acl_file
from hbroker.gateway.access.file_policy import FilePolicy
from hbroker.gateway.access.policy import Admitted, Candidate, Challenge, Check, Decision, Refusal
from hbroker.gateway.native_api import Rule
from hbroker.gateway.reason_codes import Code

METHOD: Final = "echo"
WHY: Final = "mallory is known here"


class TestPolicy(FilePolicy):
    """The method `echo`: the client sends the bytes of the challenge back in reverse order."""

    __test__ = False

    def __init__(self, settings: AccessSettings) -> None:
        super().__init__()

    def admit(self, candidate: Candidate) -> Decision | Check:
        """See `Policy`."""
        if candidate.username == "mallory":
            return Refusal(Code.BAD_USER_NAME_OR_PASSWORD, WHY)
        return super().admit(candidate)

    def exchange(
        self, candidate: Candidate, method: str, data: bytes, step: int
    ) -> Decision | Challenge | None:
        """See `Policy`."""
        if method != METHOD:
            return None
        if step == 0:
            return Challenge(data)
        return Admitted("echo") if data == b"right"[::-1] else Refusal(Code.NOT_AUTHORIZED)

    def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
        """See `Policy`."""
        return [Rule("denied/#", False, True, True), *acl_file.OPEN]
