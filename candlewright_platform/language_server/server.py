"""The Language Server Protocol over stdio, by pygls: an editor's requests, answered by `assistance`."""

import asyncio
from collections.abc import Mapping

from lsprotocol import types as lsp
from pygls.lsp.server import LanguageServer
from pygls.workspace import TextDocument

from candlewright.version import VERSION
from candlewright_platform.language_server import assistance
from candlewright_platform.language_server.assistance import Finding, Findings, Signature
from core.background import awaited_task
from triggers.texts.check import TriggerRules

__all__ = ["make_server"]

#: An editor sends every keystroke; a text is checked once the user pauses.
_PAUSE_SECONDS = 0.15
_SOURCE = "candlewright"
_KINDS = {
    "function": lsp.CompletionItemKind.Function,
    "keyword": lsp.CompletionItemKind.Keyword,
    "column": lsp.CompletionItemKind.Field,
    "table": lsp.CompletionItemKind.Struct,
    "variable": lsp.CompletionItemKind.Variable,
    "parameter": lsp.CompletionItemKind.Constant,
}


class _Texts:
    """The findings in each open text, with the version that was checked."""

    def __init__(self, server: LanguageServer, rules: TriggerRules, views: Mapping[str, str]) -> None:
        self._server = server
        self._rules, self._views = rules, views
        self._checks: dict[str, asyncio.Task[None]] = {}
        self._found: dict[str, tuple[str, Findings]] = {}

    def changed(self, uri: str) -> None:
        """Check the text after a pause, unless it changes again."""
        self._stop(uri)
        self._checks[uri] = awaited_task(self._check(uri))

    def closed(self, uri: str) -> None:
        self._stop(uri)
        self._found.pop(uri, None)
        self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri=uri, diagnostics=[]))

    def of(self, document: TextDocument) -> Findings:
        """The findings; checked now if the last check was of another text."""
        text, found = self._found.get(document.uri, ("", Findings(())))
        if text != document.source:
            found = assistance.findings(document.source, self._rules, self._views)
            self._found[document.uri] = (document.source, found)
        return found

    def _stop(self, uri: str) -> None:
        if (check := self._checks.pop(uri, None)) is not None:
            check.cancel()

    async def _check(self, uri: str) -> None:
        await asyncio.sleep(_PAUSE_SECONDS)
        document = self._server.workspace.get_text_document(uri)
        text = document.source
        found = await asyncio.to_thread(assistance.findings, text, self._rules, self._views)
        self._found[uri] = (text, found)
        self._server.text_document_publish_diagnostics(
            lsp.PublishDiagnosticsParams(
                uri=uri,
                version=document.version,
                diagnostics=[_diagnostic(document, each) for each in found.found],
            )
        )


def make_server(rules: TriggerRules, views: Mapping[str, str]) -> LanguageServer:
    """`views`: texts that every document may read by name."""
    server = LanguageServer("candlewright", VERSION)
    texts = _Texts(server, rules, views)

    @server.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        texts.changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        texts.changed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        texts.closed(params.text_document.uri)

    @server.feature(lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=[".", ":"]))
    def completion(params: lsp.CompletionParams) -> lsp.CompletionList:
        document = server.workspace.get_text_document(params.text_document.uri)
        place = document.position_codec.position_from_client_units(document.lines, params.position)
        found = assistance.completions(document.source, place.line, place.character, views=views)
        return lsp.CompletionList(is_incomplete=False, items=[_item(each) for each in found])

    @server.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        place = document.position_codec.position_from_client_units(document.lines, params.position)
        found = assistance.help_at(document.source, place.line, place.character)
        if found is None:
            return None
        shown = lsp.MarkupContent(kind=lsp.MarkupKind.Markdown, value=found.text)
        return lsp.Hover(contents=shown, range=_range(document, place.line, found.column, found.end))

    @server.feature(lsp.TEXT_DOCUMENT_SIGNATURE_HELP, lsp.SignatureHelpOptions(trigger_characters=["(", ","]))
    def signature_help(params: lsp.SignatureHelpParams) -> lsp.SignatureHelp | None:
        document = server.workspace.get_text_document(params.text_document.uri)
        place = document.position_codec.position_from_client_units(document.lines, params.position)
        found = assistance.signature_at(document.source, place.line, place.character)
        return None if found is None else _signature_help(found)

    @server.feature(
        lsp.TEXT_DOCUMENT_CODE_ACTION, lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
    )
    def code_action(params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        document = server.workspace.get_text_document(params.text_document.uri)
        return _fixes(document, texts.of(document), params.range)

    @server.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        document = server.workspace.get_text_document(params.text_document.uri)
        text = assistance.canonical(document.source)
        return [] if text is None or text == document.source else [_whole(document, text)]

    return server


def _item(found: assistance.Completion) -> lsp.CompletionItem:
    text = lsp.MarkupContent(kind=lsp.MarkupKind.Markdown, value=found.text) if found.text else None
    return lsp.CompletionItem(
        label=found.label, kind=_KINDS[found.kind], detail=found.detail or None, documentation=text
    )


def _signature_help(found: Signature) -> lsp.SignatureHelp:
    text = lsp.MarkupContent(kind=lsp.MarkupKind.Markdown, value=found.text)
    parameters = [lsp.ParameterInformation(label=place) for place in found.parameters]
    # An index past the last parameter highlights none.
    active = len(parameters) if found.active is None else found.active
    shown = lsp.SignatureInformation(label=found.label, documentation=text, parameters=parameters)
    return lsp.SignatureHelp(signatures=[shown], active_signature=0, active_parameter=active)


def _diagnostic(document: TextDocument, found: Finding) -> lsp.Diagnostic:
    severity = lsp.DiagnosticSeverity.Error if found.is_error else lsp.DiagnosticSeverity.Warning
    place = _range(document, found.line, found.column, found.end)
    return lsp.Diagnostic(range=place, message=found.message, severity=severity, source=_SOURCE)


def _fixes(document: TextDocument, findings: Findings, wanted: lsp.Range) -> list[lsp.CodeAction]:
    actions = []
    for found in findings.found:
        diagnostic = _diagnostic(document, found)
        if found.edit is None or not _meets(diagnostic.range, wanted):
            continue
        start = found.edit.column - 1
        place = _range(document, found.edit.line - 1, start, start + found.edit.length)
        edit = lsp.TextEdit(range=place, new_text=found.edit.text)
        actions.append(_action(document, f"Write {found.edit.text}", edit, [diagnostic]))
    if findings.mended is not None:
        every = [_diagnostic(document, found) for found in findings.found]
        actions.append(_action(document, "Fix all obvious slips", _whole(document, findings.mended), every))
    return actions


def _action(
    document: TextDocument, title: str, edit: lsp.TextEdit, diagnostics: list[lsp.Diagnostic]
) -> lsp.CodeAction:
    changes = lsp.WorkspaceEdit(changes={document.uri: [edit]})
    return lsp.CodeAction(title=title, kind=lsp.CodeActionKind.QuickFix, edit=changes, diagnostics=diagnostics)


def _meets(one: lsp.Range, other: lsp.Range) -> bool:
    return (one.start.line, one.start.character) <= (other.end.line, other.end.character) and (
        other.start.line,
        other.start.character,
    ) <= (one.end.line, one.end.character)


def _range(document: TextDocument, line: int, start: int, end: int) -> lsp.Range:
    """The range in the editor's units."""
    found = lsp.Range(start=lsp.Position(line, start), end=lsp.Position(line, end))
    return document.position_codec.range_to_client_units(document.lines, found)


def _whole(document: TextDocument, text: str) -> lsp.TextEdit:
    end = lsp.Position(len(document.lines), 0)
    return lsp.TextEdit(range=lsp.Range(start=lsp.Position(0, 0), end=end), new_text=text)
