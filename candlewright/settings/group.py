"""The base class of settings groups."""

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
