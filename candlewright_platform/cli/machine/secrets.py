"""`candlewright secrets`: the secrets that compose.yaml needs, made once."""

import secrets
from pathlib import Path

from candlewright.cli.output import Output, json_line
from candlewright.wire.errors import ConfigurationError
from core.doors import KeyFolder, Role

#: Names of the passwords and tokens in compose.yaml.
NAMES = ("REDIS_PASSWORD", "S3_SECRET_KEY", "SPARK_CONNECT_TOKEN")
FOLDER = "secrets"
INGESTOR, CONSOLE = "ingestors", "console"
_BYTES = 32


def make(folder: Path, output: Output) -> None:
    """Write missing secrets to `.env` and `secrets/` below `folder`; existing ones stay as they are."""
    environment, keys = folder / ".env", folder / FOLDER
    made = _complete(environment)
    try:
        # Only the owner may enter this folder. The files inside are readable, because containers run as another user.
        keys.mkdir(mode=0o700, exist_ok=True)
        file = KeyFolder(keys).own(INGESTOR, Role.ingestor)
        console = KeyFolder(keys).own(CONSOLE, Role.client)
        for path, mode in (
            (keys, 0o700),
            (keys / "keys", 0o755),
            (file.parent, 0o755),
            (keys / "keys" / "platform.key", 0o644),
            (file, 0o644),
            (console, 0o644),
        ):
            path.chmod(mode)
    except OSError as error:
        raise ConfigurationError(f"{keys} cannot be written: {error.strerror}") from error
    if output is Output.json:
        print(json_line({"environment": str(environment), "keys": str(keys), "made": made}))
        return
    print(f"{environment}: {'made ' + ', '.join(made) if made else 'everything is there'}")
    print(f"{keys}: the platform's key, and those of its ingestors and its console")
    print(f"For a client: ./run keys new NAME --data-dir {FOLDER}")


def _complete(environment: Path) -> list[str]:
    """The names that were added."""
    try:
        text = environment.read_text() if environment.exists() else ""
        known = {line.partition("=")[0].strip() for line in text.splitlines() if line.partition("=")[2].strip()}
        missing = [name for name in NAMES if name not in known]
        lines = [f"{name}={secrets.token_urlsafe(_BYTES)}" for name in missing]
        if lines:
            environment.touch(mode=0o600)
            environment.chmod(0o600)
            gap = "" if not text or text.endswith("\n") else "\n"
            environment.write_text(text + gap + "\n".join(lines) + "\n")
    except OSError as error:
        raise ConfigurationError(f"{environment} cannot be read or written: {error.strerror}") from error
    return missing
