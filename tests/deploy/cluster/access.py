"""Credentials for the lease and admin listeners, made as people make them: by the binary."""

import subprocess

# Whoever runs under these names knows its token.
VERBS = {"worker": "lease.acquire,lease.renew,lease.release", "operator": "admin.read,admin.raise"}


class Credentials:
    """The file for the gateway, and the tokens that it knows."""

    def __init__(self, binary):
        self.tokens, entries = {}, []
        for name, verbs in VERBS.items():
            made = subprocess.run([binary, "credential", "new", "--name", name, "--may", verbs, "--resource", "*",
                                   "--owner", "*"], capture_output=True, text=True, check=True).stdout
            self.tokens[name], entry = made.split("\n\n", 1)
            entries.append(entry)
        self.file = "\n".join(entries)

    def secret(self):
        """As the Secret that deployments name."""
        return {"fencegate-access": {"credentials.toml": self.file}}

    def bearer(self, name="worker"):
        return {"Authorization": f"Bearer {self.tokens[name]}"}
