"""Pages in headless Chromium, by the DevTools protocol over a pipe: JSON messages that end with a zero byte."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time


def program():
    """The path of Chromium, or None."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return next(filter(None, map(shutil.which, names)), None)


class Browser:
    """A headless Chromium that reaches no host."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        their_in, self.out = os.pipe()
        self.input, their_out = os.pipe()
        # Chromium reads requests from descriptor 3 and writes answers to 4.
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={self.profile.name}"]
        line = 'exec "$@" 3<&"$IN" 4>&"$OUT"'
        env = os.environ | {"IN": str(their_in), "OUT": str(their_out)}
        command = ["bash", "-c", line, "bash", program(), *flags, "about:blank"]
        quiet = subprocess.DEVNULL
        self.process = subprocess.Popen(command, env=env, pass_fds=(their_in, their_out), stdout=quiet, stderr=quiet)
        os.close(their_in)
        os.close(their_out)
        self.buffer, self.number, self.console, self.session = b"", 0, [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def message(self, until):
        """The next message; what the page writes to its console is kept."""
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.input], [], [], max(until - time.monotonic(), 0))
            block = os.read(self.input, 1 << 20) if ready else b""
            if not block:
                raise TimeoutError("Chromium does not answer")
            self.buffer += block
        line, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(line)
        if message.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"):
            self.console.append(message["params"])
        return message

    def call(self, method, **params):
        self.number += 1
        request = dict(id=self.number, method=method, params=params)
        if self.session:
            request["sessionId"] = self.session
        os.write(self.out, json.dumps(request).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            message = self.message(until)
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]

    def view(self, width, height=900, dark=False):
        """Sets the size of the view, which may be narrower than any window, and the preferred colours."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        scheme = dict(name="prefers-color-scheme", value="dark" if dark else "light")
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, address):
        self.call("Page.navigate", url="about:blank")  # an address that differs in its fragment is not loaded
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def value(self, expression):
        """The value of an expression in the page."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=30):
        until = time.monotonic() + seconds
        while not self.value(f"!!({expression})"):
            if time.monotonic() > until:
                raise TimeoutError(f"{expression} did not become true within {seconds} s")
            time.sleep(0.05)

    def key(self, name, code=0):
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name, windowsVirtualKeyCode=code)

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path):
        data = self.call("Page.captureScreenshot")["data"]
        path.write_bytes(base64.b64decode(data))

    def close(self):
        os.close(self.out)
        self.process.terminate()
        self.process.wait()
        os.close(self.input)
        self.profile.cleanup()
