package console

import (
	"strings"
	"testing"
	"testing/fstest"
)

var pagesOfManual = fstest.MapFS{
	"README.md": {Data: []byte("# Manual\n\n- [money](money.md): what `wallet` does\n")},
	"money.md": {Data: []byte(`# Money

See [the backup](backups.md#restore "why"), [below](#sums) and [elsewhere](https://example.org/a.md).

## Sums
| sum | of |
|---|--:|
| 1 | <b>2</b> |

<script>alert(1)</script>

` + "```console\n$ ronbox help <b>\n```\n")},
}

// A page has the links of the console, no HTML of its own and no style.
func TestManualIsRendered(t *testing.T) {
	b, err := newBook(pagesOfManual)
	if err != nil {
		t.Fatal(err)
	}
	page, err := b["money"]()
	if err != nil || page.Title != "Money" {
		t.Fatal(page.Title, err)
	}
	got := string(page.Text)
	for _, want := range []string{
		`<a href="/console/manual/backups#restore" title="why">the backup</a>`, `<a href="#sums">below</a>`,
		`<a href="https://example.org/a.md">`, `<h2 id="sums">Sums</h2>`, `<th align="right">of</th>`, `<div class="scroll" tabindex="0"><table>`,
		"<pre tabindex=\"0\"><code class=\"language-console\">$ ronbox help &lt;b&gt;\n</code>",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%s is not in\n%s", want, got)
		}
	}
	for _, bad := range []string{"<b>", "<script", "style=", "<h1"} {
		if strings.Contains(got, bad) {
			t.Errorf("%s is in\n%s", bad, got)
		}
	}
	if again, _ := b["money"](); again != page {
		t.Error("rendered anew")
	}
}
