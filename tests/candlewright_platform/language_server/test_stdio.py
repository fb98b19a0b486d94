"""The language server as an editor starts it, with pygls' own client."""

import asyncio
import sys

import pytest
from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

URI = "file:///tmp/fall.trigger.sql"
TEXT = "-- 😀 parameters\nSELECT prise,  sise\nFORM ticks\nWHERE '😀' <> ticker AND prize > 1"
TIMEOUT = 30


pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]


class Editor(LanguageClient):
    """Collects what the server publishes."""

    def __init__(self) -> None:
        super().__init__("editor", "1")
        self.published: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @self.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: lsp.PublishDiagnosticsParams) -> None:
            self.published.put_nowait(params)

    async def told(self) -> lsp.PublishDiagnosticsParams:
        return await asyncio.wait_for(self.published.get(), TIMEOUT)


def open_text(editor: Editor, text: str, uri: str = URI) -> None:
    document = lsp.TextDocumentItem(uri=uri, language_id="candlewright-trigger", version=1, text=text)
    editor.text_document_did_open(lsp.DidOpenTextDocumentParams(text_document=document))


def change_text(editor: Editor, text: str, version: int) -> None:
    document = lsp.VersionedTextDocumentIdentifier(uri=URI, version=version)
    whole = lsp.TextDocumentContentChangeWholeDocument(text=text)
    editor.text_document_did_change(lsp.DidChangeTextDocumentParams(text_document=document, content_changes=[whole]))


async def test_an_editor_is_helped_over_stdio() -> None:
    editor = Editor()
    await editor.start_io(sys.executable, "-m", "candlewright", "language-server")
    document = lsp.TextDocumentIdentifier(uri=URI)
    try:
        begun = await editor.initialize_async(
            lsp.InitializeParams(capabilities=lsp.ClientCapabilities(), root_uri=None, process_id=None)
        )
        assert begun.server_info is not None and begun.server_info.name == "candlewright"
        editor.initialized(lsp.InitializedParams())

        open_text(editor, TEXT)
        found = (await editor.told()).diagnostics
        # In UTF-16 units, in which the smiley is two.
        places = [(each.range.start.line, each.range.start.character, each.range.end.character) for each in found]
        assert places == [(1, 7, 12), (1, 15, 19), (2, 5, 10), (3, 25, 30)]

        actions = await editor.text_document_code_action_async(
            lsp.CodeActionParams(document, found[-1].range, lsp.CodeActionContext(diagnostics=[found[-1]]))
        )
        fix, every = [each for each in actions or [] if isinstance(each, lsp.CodeAction)]
        assert (fix.title, every.title) == ("Write price", "Fix all obvious slips")
        assert fix.edit is not None and fix.edit.changes is not None
        assert fix.edit.changes[URI][0].range == found[-1].range
        assert every.edit is not None and every.edit.changes is not None
        mended = every.edit.changes[URI][0].new_text
        assert isinstance(mended, str)

        # Only the last of several consecutive changes is checked.
        for version in range(2, 8):
            change_text(editor, "SELECT (" * version, version)
        change_text(editor, mended, 8)
        told = await editor.told()
        assert (told.version, list(told.diagnostics)) == (8, [])

        place = lsp.Position(3, 26)
        hover = await editor.text_document_hover_async(lsp.HoverParams(document, place))
        assert hover is not None and "price of the trade" in str(hover.contents)
        listed = await editor.text_document_completion_async(lsp.CompletionParams(document, place))
        assert isinstance(listed, lsp.CompletionList)
        assert {"RSI", "price", "GROUP BY"} <= {each.label for each in listed.items}
        change_text(editor, "SELECT '😀', LAG(EMA(price, 9), ", 9)
        for column, label, active in (
            (31, "LAG(x, n, default)", 1),
            (27, "EMA(x, n)", 1),
            (17, "LAG(x, n, default)", 0),
        ):
            help_ = await editor.text_document_signature_help_async(
                lsp.SignatureHelpParams(document, lsp.Position(0, column))
            )
            assert help_ is not None
            (signature,) = help_.signatures
            assert (signature.label, help_.active_parameter) == (label, active)
            assert signature.parameters is not None
            start, end = signature.parameters[1].label
            assert label[int(start) : int(end)] == "n"
        outside = lsp.SignatureHelpParams(document, lsp.Position(0, 8))
        assert await editor.text_document_signature_help_async(outside) is None
        change_text(editor, mended, 10)
        await editor.told()
        options = lsp.FormattingOptions(tab_size=2, insert_spaces=True)
        (layout,) = await editor.text_document_formatting_async(lsp.DocumentFormattingParams(document, options)) or []
        assert "\nFROM ticks\nWHERE" in layout.new_text

        open_text(editor, "x" * 200_000, "file:///tmp/long.trigger.sql")
        (refused,) = (await editor.told()).diagnostics
        assert "65536" in refused.message.replace(",", "") or "64 KiB" in refused.message
        editor.text_document_did_close(lsp.DidCloseTextDocumentParams(text_document=document))
        assert not (await editor.told()).diagnostics
    finally:
        await editor.shutdown_async(None)
        editor.exit(None)
        await editor.stop()
