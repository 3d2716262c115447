"""What mkdocs calls while it builds the site: pages that are made, and links that are mapped."""

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from api_pages import api_pages
from commands_page import commands_page
from github_markdown import GitHubMarkdown
from repository import FRONT, ROOT, linked_files, listing, with_site_links

MADE: set[str] = set()
"""Pages without a file of their own: their links are as the site needs them already."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Read Markdown as code hosts do."""
    config.markdown_extensions.append(GitHubMarkdown())
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie beside `docs`, the command line, and files that pages link to."""
    MADE.clear()
    shown: set[str] = set()
    for path, page in FRONT.items():
        text = (ROOT / path).read_text("utf-8")
        _add(files, config, page, with_site_links(text, path))
        shown |= linked_files(text, path)
    for file in files.documentation_pages():
        if file.src_uri not in MADE:
            shown |= linked_files(file.content_string, f"docs/{file.src_uri}")
    for path in sorted(shown):
        _add(files, config, f"files/{path}.md", listing(path))
    for page, text in {"commands.md": commands_page(), **api_pages()}.items():
        _add(files, config, page, text)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Map links of a page from the repository to the site."""
    source = page.file.src_uri
    return markdown if source in MADE else with_site_links(markdown, f"docs/{source}")


def _add(files: Files, config: MkDocsConfig, page: str, text: str) -> None:
    files.append(File.generated(config, page, content=text))
    MADE.add(page)
