"""The policy that reads files: users and their passwords, access rules, and the keys of tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hbroker.gateway.access import acl_file
from hbroker.gateway.access.acl_file import Acl
from hbroker.gateway.access.password_file import Passwords
from hbroker.gateway.access.policy import Admitted, Candidate, Challenge, Check, Decision, Refusal
from hbroker.gateway.access.scram import METHOD, ScramExchange
from hbroker.gateway.access.web_tokens import WebTokens, is_proof, is_token
from hbroker.gateway.native_api import Rule
from hbroker.gateway.reason_codes import Code

__all__ = ["FilePolicy"]


class FilePolicy:
    """mosquitto's rules: a file of passwords, a file of access rules, and whether a client may have no name;
    and tokens as passwords.

    `passwords`, `tokens`: with neither, any name is accepted, with any password or none. `access`: None:
    every client may do everything.
    """

    def __init__(
        self,
        passwords: Passwords | None = None,
        access: Acl | None = None,
        *,
        tokens: WebTokens | None = None,
        anonymous: bool = True,
    ) -> None:
        self._passwords = passwords
        self._access = access
        self._tokens = tokens
        self._anonymous = anonymous

    @property
    def remembers_passwords(self) -> bool:
        """Whether there is a file of passwords. See `remembers_passwords` of this module."""
        return self._passwords is not None

    def admit(self, candidate: Candidate) -> Decision | Check:
        """See `Policy`."""
        user, passwords = candidate.username, self._passwords
        if candidate.certificate:
            return Admitted(candidate.certificate, _CERTIFICATE)
        if self._tokens is not None and candidate.password is not None and is_token(candidate.password):
            return self._tokens.admit(candidate, candidate.password)
        if user is None:
            return _ANONYMOUS if self._anonymous else _NO_NAME
        if passwords is None and self._tokens is not None:
            return _NO_TOKEN
        if passwords is None:  # If certificates prove names at this listener, a name without one is refused.
            return _UNPROVEN if candidate.names_user else Admitted(user)
        if candidate.password is None:
            return _WRONG
        password = candidate.password
        admitted = Admitted(user, passwords.hash_of(user) or "")
        if passwords.is_remembered(user, password):
            return admitted
        return lambda: admitted if passwords.verify(user, password) else _WRONG

    def exchange(
        self, candidate: Candidate, method: str, data: bytes, step: int
    ) -> Decision | Challenge | None:
        """See `Policy`. SCRAM-SHA-256 is known if a user has a verifier for it."""
        if method != METHOD or self._passwords is None or not self._passwords.has_scram:
            return None
        if not step:
            passwords = self._passwords
            return ScramExchange(passwords.scram_verifier, passwords.scram_secret).begin(data)
        begun = candidate.exchange
        assert isinstance(begun, ScramExchange), "it began with one"
        return begun.end(data)

    def rules(self, username: str | None, client_id: str) -> Sequence[Rule]:
        """See `Policy`."""
        return acl_file.OPEN if self._access is None else self._access.rules(username, client_id)

    def rules_name(self, username: str | None, client_id: str) -> tuple[str, ...]:
        """See `Policy`."""
        if self._access is None:
            return ()
        name = ("anonymous",) if username is None else ("user", username)
        return (*name, client_id) if self._access.names_clients else name

    def still_admits(self, username: str | None, client_id: str, proof: str) -> bool:
        """See `Policy`. As with mosquitto, a client whose name or password is no longer in the file may not
        stay."""
        if proof == _CERTIFICATE:
            return True
        if is_proof(proof):
            return self._tokens is not None and self._tokens.still_admits(proof)
        if username is None:
            return self._anonymous
        if self._passwords is None:
            return self._tokens is None
        return bool(proof) and self._passwords.hash_of(username) == proof


_CERTIFICATE: Final = "certificate"
_ANONYMOUS: Final = Admitted(None)
_NO_NAME: Final = Refusal(Code.NOT_AUTHORIZED, "a user name is needed")
_UNPROVEN: Final = Refusal(Code.BAD_USER_NAME_OR_PASSWORD, "a user name needs a certificate here")
_NO_TOKEN: Final = Refusal(Code.BAD_USER_NAME_OR_PASSWORD, "a token is needed as the password")
_WRONG: Final = Refusal(Code.BAD_USER_NAME_OR_PASSWORD, "wrong user name or password")
