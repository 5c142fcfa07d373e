"""Bare sockets: exactly these bytes out, and a strict reading of what comes back."""
import re
import socket

STATUS_LINE = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) ([A-Za-z ]+)\r\n")
FIELD_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+): ([\t\x20-\x7e\x80-\xff]*)\r\n")


class Answer:
    def __init__(self, status, reason, fields, body):
        self.status = status
        self.reason = reason
        self.fields = fields
        self.body = body

    def __getitem__(self, name):
        values = [value for field, value in self.fields if field.lower() == name.lower()]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None

    def __repr__(self):
        return f"<{self.status} {self.fields} {self.body[:200]!r}>"

    @property
    def verdict(self):
        """All but what the clock and the random numbers make different from one time to the next."""
        if self.status == 201:
            return self.status
        return self.status, [f for f in self.fields if f[0] != "Date"], self.body


def assert_challenge(status, challenge):
    """RFC 9110: every 401 has one. For these schemes no browser opens a dialog."""
    known = ('Bearer realm="curt"', 'Password realm="link"') if status == 401 else (None,)
    assert challenge in known, f"{status} with WWW-Authenticate: {challenge}"


class Closed(Exception):
    """The peer has closed, and there was no answer before."""


class Wire:
    def __init__(self, port, patience_s, receive_buffer=None):
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(patience_s)
        self.sock.connect(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.kept = b""

    def send(self, data):
        self.sock.sendall(data)

    def send_until_closed(self, data):
        """Sends, but does not mind when the peer has heard enough."""
        try:
            self.sock.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            pass

    def half_close(self):
        self.sock.shutdown(socket.SHUT_WR)

    def half_close_if_open(self):
        try:
            self.half_close()
        except OSError:  # the peer has reset it
            pass

    def close(self):
        self.sock.close()

    def _more(self):
        try:
            piece = self.sock.recv(65536)
        except ConnectionResetError:
            piece = b""
        if not piece:
            raise Closed(self.kept)
        self.kept += piece

    def read(self, method="GET"):
        """The next answer. Any slip in its form is an error."""
        while b"\r\n\r\n" not in self.kept:
            self._more()
        end = self.kept.index(b"\r\n\r\n") + 2
        line = STATUS_LINE.match(self.kept)
        assert line, self.kept[:200]
        status, at, fields = int(line[1]), line.end(), []
        while at < end:
            field = FIELD_LINE.match(self.kept, at)
            assert field, self.kept[at:at + 200]
            fields.append((field[1].decode(), field[2].decode("latin-1")))
            at = field.end()
        answer = Answer(status, line[2].decode(), fields, b"")
        assert_challenge(status, answer["WWW-Authenticate"])
        length = 0
        if status >= 200 and status not in (204, 304):
            assert answer["Date"] and answer["Transfer-Encoding"] is None
            length = int(answer["Content-Length"])
        else:
            assert answer["Content-Length"] is None
        if method == "HEAD":
            length = 0
        end += 2
        while len(self.kept) < end + length:
            self._more()
        answer.body, self.kept = self.kept[end:end + length], self.kept[end + length:]
        return answer

    def ask(self, data, method="GET"):
        self.send(data)
        return self.read(method)

    def get(self, path, *fields):
        return self.ask(request("GET", path, *fields))

    def answers_until_closed(self):
        """All that still comes; the peer must close after it."""
        answers = []
        while True:
            try:
                answers.append(self.read())
            except Closed as closed:
                assert closed.args[0] == b"", f"half an answer: {closed.args[0][:200]}"
                return answers

    def is_closed(self):
        """Waits for the peer to close without another word."""
        return self.answers_until_closed() == []


def request(method, path, *fields, body=None, key=None, version="1.1"):
    """A well-formed request."""
    head = [f"{method} {path} HTTP/{version}", "Host: curt.test", *fields]
    if key:
        head.append(f"Authorization: Bearer {key}")
    if body is not None:
        body = body if isinstance(body, bytes) else body.encode()
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + (body or b"")


def chunked(*pieces):
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
