package upstream

import (
	"net/http"
	"strings"
	"testing"
)

// An answer has a strong tag if it has one header line, and that is one tag.
func TestETag(t *testing.T) {
	for text, want := range map[string]bool{
		`"a"`: true, `""`: true, `"é"`: true, `"a\b"`: true,
		`W/"a"`: false, `w/"a"`: false, `a`: false, `"`: false, ``: false, `"a`: false, `a"`: false, `"a"b"`: false, `"a b"`: false, "\"a\t\"": false, "\"a\x7f\"": false,
		`"a", "b"`: false, `*`: false, ` "a"`: false,
	} {
		if got := (&Answer{Header: http.Header{"Etag": {text}}}).ETag(); got != map[bool]string{true: text}[want] {
			t.Errorf("%q: %q", text, got)
		}
	}
}

// What is no media type is bytes.
func TestMediaType(t *testing.T) {
	const none = "application/octet-stream"
	for text, want := range map[string]string{
		"text/css": "text/css", "Text/HTML;charset=UTF-8": "text/html; charset=UTF-8", "": none, "text": none, "text/css; =": none, "text/" + strings.Repeat("x", 200): none,
		"text/css, text/html": none,
	} {
		if got := (&Answer{Header: http.Header{"Content-Type": {text}}}).MediaType(); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
