"""Signed manifests: the contents of a data set, and the proof that its files are unchanged since they were signed."""

from datasets.manifest.checking import Verdict, check
from datasets.manifest.making import DataSet, write
from datasets.manifest.signing import public_key

__all__ = ["DataSet", "Verdict", "check", "public_key", "write"]
