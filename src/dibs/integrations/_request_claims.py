"""The claims of a request under WSGI: the request owns them, whatever becomes of its response."""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from .._http.policy import Policy
from .._http.responses import Completion, RawHeaders, Recording
from ._sync.http_claims import end_claim

if TYPE_CHECKING:
    from .._internal_api import Claim

StartResponse = Callable[..., Callable[[bytes], object]]
_END: Any = object()


class RequestClaim:
    """A claim, and the response by which it ends, as far as that is stored."""

    __slots__ = ("_path", "_policy", "claim", "has_response", "is_whole", "recording")

    def __init__(self, policy: Policy, claim: "Claim", path: str | None = None) -> None:
        """*path*: of the request, if its router may redirect it."""
        self.claim = claim
        self._policy = policy
        self._path = path
        self.recording = Recording(policy.record_limit, path)
        self.has_response = False
        """True: its view has returned."""
        self.is_whole = False
        """True: nothing is missing in the recording."""

    def begin(self, status: int, headers: RawHeaders) -> None:
        """The view has returned, or the response begins; it may begin once more."""
        self.recording = Recording(self._policy.record_limit, self._path)
        self.recording.begin(status, headers)
        self.has_response = True

    @property
    def is_kept(self) -> bool:
        """Return True if the response will be stored, also if its client leaves."""
        policy = self._policy
        is_stored = policy.record_limit is not None and policy.on_disconnect == "finish"
        return is_stored and self.recording.is_storable and self.claim.is_open

    def end(self) -> None:
        """End it by its response; by the fact that there was one, if that is not whole."""
        if not self.is_whole:
            self.recording.discard()
        end_claim(self.claim, self._policy, self.recording)

    def leave(self) -> None:
        """The client has not waited for the whole response."""
        if self.is_whole or self._policy.on_disconnect == "finish":
            self.end()
        else:
            self.fail()

    def fail(self) -> None:
        """End it as an exception would. A detached claim stays detached if there was a response."""
        if self.claim.is_open or not self.recording.status:
            self.claim.fail()


class ResponseBody:
    """The body of a response that is really sent. What ends with it ends before its client has all.

    The application is read to its end before it: a commit may come after its last piece.
    """

    def __init__(
        self,
        method: str,
        start_response: StartResponse,
        claims: list[RequestClaim],
        on_close: Callable[[], object] = bool,
        *,
        is_recorded: bool,
    ) -> None:
        """*is_recorded*: what is sent is what is stored; else the claims know what their views say.

        *on_close*: called at the end of the request.
        """
        self._method = method.upper()
        self._start_response = start_response
        self._claims = claims
        self._on_close = on_close
        self._is_recorded = is_recorded
        self._pieces: Iterable[bytes] = ()
        self._iterator: Iterator[bytes] = iter(())
        self._ahead: Any = None
        """What was read after the piece that completes the response."""
        self._status = 0
        self._completion: Completion | None = None
        self._is_over = False

    def run(self, app: Callable[..., Iterable[bytes]], environ: dict[str, Any]) -> "ResponseBody":
        """Call the application. Raises what it raises, which ends the claims."""
        try:
            self._pieces = app(environ, self._note_start)
            self._iterator = iter(self._pieces)
        except BaseException:
            self._fail_response()
            self._on_close()
            raise
        begun = self._completion
        if (
            self._is_recorded
            and begun is not None
            and not begun.has_length
            and isinstance(self._pieces, list | tuple)
        ):
            size = str(sum(map(len, self._pieces)))
            self._completion = Completion("", self._status, [("content-length", size)])
        return self

    def unless_over(self) -> Iterable[bytes]:
        """Return the body, or that of the application, if no claim has to wait for its end."""
        if all(each.is_whole for each in self._claims):
            self._end_response()
        return self if any(each.claim.is_open for each in self._claims) else self._pieces

    def _note_start(self, status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
        self._status = int(status.partition(" ")[0])
        self._completion = Completion(self._method, self._status, headers)
        if self._is_recorded:
            for each in self._claims:
                each.begin(self._status, headers)
        write = self._start_response(status, headers, *error)

        def recorded(piece: bytes) -> object:
            if self._add_piece(piece):
                self._end_response()
            return write(piece)

        return recorded

    def _add_piece(self, piece: bytes) -> bool:
        """Record a piece. Returns whether its client has the whole response with it."""
        if self._is_recorded:
            for each in self._claims:
                each.recording.add(piece)
        if self._is_over or self._completion is None:
            return False
        return self._completion.add(len(piece))

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        piece, self._ahead = self._ahead, None
        if piece is _END:
            raise StopIteration
        if piece is not None:
            return piece
        try:
            piece = next(self._iterator)
            if self._add_piece(piece):
                self._ahead = next(self._iterator, _END)
                self._end_response()
        except StopIteration:
            self._end_response()
            raise
        except BaseException:
            self._fail_response()
            raise
        return piece

    def _end_response(self) -> None:
        if self._is_over or not self._status:
            return
        self._is_over = True
        for each in self._claims:
            each.is_whole = each.is_whole or self._is_recorded
            each.end()

    def close(self) -> None:
        """Called by the server at the end. If the response is incomplete, its client has left."""
        try:
            self._read_to_end()
        finally:
            try:
                close = getattr(self._pieces, "close", None)
                if close is not None:
                    close()
            except BaseException:
                self._fail_response()
                raise
            finally:
                for each in self._claims:
                    if self._status and each.has_response and each.claim.is_open:
                        each.leave()
                self._fail_response()
                self._on_close()

    def _read_to_end(self) -> None:
        """Read what its client has not waited for, if it is stored."""
        while not self._is_over and any(each.is_kept for each in self._claims):
            if next(self, _END) is _END:
                return

    def _fail_response(self) -> None:
        self._is_over = True
        for each in self._claims:
            each.fail()
