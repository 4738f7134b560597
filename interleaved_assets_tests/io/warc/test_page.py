"""The blocks of a page, and which of them are its main content."""

import pytest

from interleaved_assets.io.warc.main_content import choose_main
from interleaved_assets.io.warc.page import Page, parse_page

LONG = "Words of a paragraph that somebody has written to be read. " * 10


def parsed(html: str) -> Page:
    return parse_page(html.encode(), "https://a.example/b/")


def blocks(html: str) -> list[str]:
    """Texts, and the addresses of images, of all blocks."""
    return [block.url or block.text for block in parsed(html).blocks]


def main(html: str) -> list[str]:
    return [block.url or block.text for block in choose_main(parsed(html))[0]]


@pytest.mark.parametrize(
    ("html", "found"),
    [
        ("<p>one <b>bold</b>\n  word<br>and another<p>two", ["one bold word\nand another", "two"]),
        ("<p><br>a\n b<br> <br><br>c<br></p>", ["a b\n\nc"]),
        ("<pre>a<br>b</pre>", ["a\nb"]),
        ("<div>a<br>b<h2>Find <b>a<br>showroom</b></h2>", ["a\nb", "Find a showroom"]),
        ("<table><tr><td>a<br>b<td>c<br>d</table>", ["a b | c d"]),
        ("text<div>in<span>side</span></div>after", ["text", "inside", "after"]),
        ("<p>before <img src=a.png> after", ["before", "https://a.example/b/a.png", "after"]),
        ("<pre>\n  a\n    b\n</pre>", ["  a\n    b"]),
        ("<table><tr><th>a<th>b<tr><td>1<td><i>2</i></table>", ["a | b", "1 | 2"]),
        ("<table><tr><td><p>x<p>y<td>z</table>", ["x", "y", "z"]),
        ("<ul><li>a<li>b <ul><li>c</ul></ul>", ["a", "b", "c"]),
        ("<script>x</script><style>y</style><template>t</template><svg><text>z</text></svg><button>b</button>w", ["w"]),
        ("a<!-- no -->b", ["ab"]),
        ("<p> \n </p><div>|</div>", []),
        ("", []),
        ("<frameset><frame src=a></frameset>", []),
        ("&lt;b&gt; &#x20AC; &#xD800; &nbsp;", ["<b> € \ufffd"]),
    ],
)
def test_blocks_are_in_the_order_of_the_page(html: str, found: list[str]) -> None:
    assert blocks(html) == found


def test_a_page_that_scripts_build_is_read_from_what_stands_in_for_them() -> None:
    assert blocks(f"<div id=app></div><noscript><p>{LONG}</p></noscript>") == [LONG.strip()]
    assert blocks(f"<p>{LONG}</p><noscript><p>Turn scripts on.</p></noscript>") == [LONG.strip()]


def test_images_have_the_caption_of_their_figure() -> None:
    page = parsed(
        "<figure><img src=1.png><img src=2.png><figcaption>Both <i>of</i> them</figcaption></figure><img src=3.png>"
    )
    assert [block.caption for block in page.blocks if block.url] == ["Both of them", "Both of them", None]


@pytest.mark.parametrize(
    "part",
    [
        "<nav>{}</nav>", "<footer>{}</footer>", "<aside>{}</aside>", "<dialog open>{}</dialog>",
        "<div role=banner>{}</div>",
        "<div class='site-footer dark'>{}</div>", "<div id=cookie-notice>{}</div>", "<ul class='Related_Posts'>{}</ul>",
        "<p hidden>{}</p>", "<div style='color: red; DISPLAY : none'>{}</div>", "<div aria-hidden=true>{}</div>",
        "<section class=comments>{}</section>", "<p><span class=sr-only>{}</span></p>",
    ],
)  # fmt: skip
def test_parts_that_are_not_the_main_content_are_left_out(part: str) -> None:
    assert main(f"<body><p>{LONG}</p>{part.format('left out')}</body>") == [LONG.strip()]


@pytest.mark.parametrize(
    "part", ["<div class=navy>{}</div>", "<div class=commented>{}</div>", "<div id=loading>{}</div>"]
)
def test_parts_whose_names_only_resemble_such_a_part_are_kept(part: str) -> None:
    assert main(f"<body><p>{LONG}</p>{part.format('kept')}</body>") == [LONG.strip(), "kept"]


@pytest.mark.parametrize(
    ("names", "part"),
    [
        ("site-ad-box", "aside"), ("Recommended_items", "aside"), ("x sr-only", "hidden"), ("user-info", "author"),
        ("a\ttoast", "dialog"), ("sr onlyx", None), ("ad.box", None), ("xpromo", None), ("menubar", None),
    ],
)  # fmt: skip
def test_any_word_of_a_class_or_id_tells_the_part(names: str, part: str | None) -> None:
    found = parse_page(f"<div class='{names}'>text</div>".encode(), "https://a.example/").regions
    assert [region.part for region in found] == [part] * (part is not None)


def test_a_part_with_most_of_the_text_is_content_whatever_it_is_called() -> None:
    for part in (f"<nav><p>{LONG}</p></nav>", f"<div class=widgets><p>{LONG}</p></div>", f"<aside>{LONG}</aside>"):
        assert main(f"<body><p>Short.</p>{part}</body>") == ["Short.", LONG.strip()]


PARAGRAPH = "A paragraph with several words of the article. "


def test_paragraphs_that_are_all_called_a_dialog_are_the_content() -> None:
    free, walled = f"<p>{PARAGRAPH}</p>", f'<p class="paywall">{PARAGRAPH}</p>'
    assert len(main(free + 9 * walled)) == 10
    assert len(main(9 * free + walled)) == 9


@pytest.mark.parametrize(("opening", "is_left_out"), [("aside id=sidebar", True), ("aside class=x", False)])
def test_a_sidebar_by_element_and_name_is_left_out_beside_a_short_article(opening: str, is_left_out: bool) -> None:
    aside = f"<{opening}><p>{LONG}</p></aside>"
    assert main(f"<body><p>{LONG}</p><p>More.</p>{aside}</body>")[2:] == ([] if is_left_out else [LONG.strip()])


def test_the_text_around_main_or_article_is_left_out_unless_there_are_many_articles() -> None:
    assert main(f"<body>before<main><p>{LONG}</p></main>after</body>") == [LONG.strip()]
    assert main(f"<body>before<article><p>{LONG}</p></article>after</body>") == [LONG.strip()]
    assert main(f"<body>before<div itemprop=articleBody><p>{LONG}</p></div>after</body>") == [LONG.strip()]
    several = "".join(f"<article><p>{number} {LONG}</p></article>" for number in range(4))
    assert main(f"<body>before{several}</body>") == ["before", *(f"{number} {LONG}".strip() for number in range(4))]


def test_a_text_that_is_only_a_short_link_is_left_out() -> None:
    html = f"<p>{LONG}</p><p><a href=/x>Read more</a></p><p><a href=/y>{LONG}</a></p><h2><a href=/z>Heading</a></h2>"
    assert main(html) == [LONG.strip(), LONG.strip(), "Heading"]


def teasers(count: int) -> str:
    """Pictures and headlines of other pages, too long for short links."""
    title = "A headline of another article that is in this list, number"
    return "".join(f"<img src={at}.png><h3><a href=/{at}>{title} {at}</a></h3>" for at in range(count))


def test_a_list_of_links_to_other_pages_is_left_out_with_the_images_between_them() -> None:
    html = f"<body><p>{LONG}</p>{teasers(3)}<img src=own.png><p>End.</p></body>"
    found, characters, images = choose_main(parsed(html))
    assert [block.url or block.text for block in found] == [
        LONG.strip(), "https://a.example/b/0.png", "https://a.example/b/own.png", "End.",
    ]  # fmt: skip
    assert characters == {"links": 3 * 60}
    assert images == {"links": 2}


def test_two_links_are_no_list_and_a_page_of_links_has_them_as_its_content() -> None:
    assert len(main(f"<body><p>{LONG}</p>{teasers(2)}</body>")) == 5
    assert len(main(f"<body><p>{LONG}</p>{teasers(30)}</body>")) == 61


def test_figures_whose_captions_are_links_are_no_list_of_other_pages() -> None:
    figure = (
        "<figure><img src={0}.png><figcaption><a href={0}>The caption of figure number {0}, as a link</a></figcaption>"
    )
    figures = "".join(f"{figure.format(at)}</figure>" for at in range(3))
    assert len(main(f"<body><p>{LONG}</p>{figures}</body>")) == 7


def test_rows_of_a_table_whose_cells_are_links_stay_in_it() -> None:
    rows = "".join(
        f"<tr><td><a href=p>a-package-with-a-rather-long-name-{at}</a><td><a href=s>1{at}2</a><td>{at}"
        for at in range(4)
    )
    found = main(f"<p>{LONG}</p><table><tr><th>Name<th>Size<th>No{rows}</table><p>{LONG}</p>")
    assert found[1:-1] == [
        "Name | Size | No",
        *(f"a-package-with-a-rather-long-name-{at} | 1{at}2 | {at}" for at in range(4)),
    ]


def test_short_texts_before_and_after_the_text_to_read_are_left_out_with_their_images() -> None:
    top = "<div>Edition</div><div>Saturday</div><div>23 °C</div><img src=logo.png><div>12:30</div><img src=lead.png>"
    end = "<img src=last.png><h3>More news</h3><div>21 June</div><img src=more.png><div>© 2014</div>"
    read = [LONG.strip(), LONG.strip()]
    places = [f"https://a.example/b/{name}.png" for name in ("lead", "last")]
    assert main(f"{top}<p>{LONG}</p><p>{LONG}</p>{end}") == [places[0], *read, places[1]]
    # a heading of the page stays, with what follows it
    assert main(f"{top}<h1>Storm</h1>By A. B.<p>{LONG}</p>") == [places[0], "Storm", "By A. B.", LONG.strip()]


def test_photos_with_short_captions_after_a_text_and_an_end_of_two_texts_stay() -> None:
    photos = "".join(f"<img src={at}.jpg><div>Photo number {at}</div>" for at in range(9))
    assert len(main(f"<p>{LONG}</p>{photos}")) == 19
    assert main(f"<p>{LONG}</p><div>See more photos:</div><img src=a.jpg><div>End.</div>")[1:] == [
        "See more photos:", "https://a.example/b/a.jpg", "End.",
    ]  # fmt: skip


def test_a_page_of_short_texts_is_kept_whole() -> None:
    words = "".join(f"<p>{word} {LONG[:20]}</p>" for word in ("one", "two", "three", "four", "five"))
    assert len(main(f"{words}<p>{LONG[:60]}</p>{words}")) == 11


def test_what_is_left_out_is_counted_by_part() -> None:
    page = parsed(f"<nav>12345<img src=a.png></nav><main><p>{LONG}</p><div class=share>123</div></main>outside")
    _, characters, images = choose_main(page)
    assert characters == {"navigation": 5, "share": 3, "outside": 7}
    assert images == {"navigation": 1}
