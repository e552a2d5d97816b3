package obs

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
	"pgregory.net/rapid"
)

type account struct {
	Name      string
	AuthToken string
	Nested    map[string]any
}

// A secret inside a value is hidden as one that stands alone is.
func TestNestedSecretsNeverShow(t *testing.T) {
	const secret = "hunter2"
	header := http.Header{
		"Authorization": {"Bearer " + secret},
		"X-Api-Key":     {secret},
		"Set-Cookie":    {secret, secret},
		"Accept":        {"text/plain"},
	}
	for _, format := range []string{"json", "text"} {
		got := logged(LogConfig{Format: format, Level: "info"}, func(l hclog.Logger) {
			l.Info(
				"x",
				"headers",
				header,
				"who",
				account{
					Name:      "ann",
					AuthToken: secret,
					Nested:    map[string]any{"private.key": []string{secret}, "n": 7},
				},
				"all",
				[]account{{AuthToken: secret}},
				"raw",
				json.RawMessage(`{"a":[{"token":{"b":"`+secret+`"}}]}`),
				"authToken",
				secret,
				"APIKey",
				secret,
			)
		})
		if strings.Contains(got, secret) {
			t.Errorf("%s shows the secret:\n%s", format, got)
		}
		for _, want := range []string{"text/plain", "ann", `"n":7`, hidden} {
			if !strings.Contains(got, want) {
				t.Errorf("%s does not show %s:\n%s", format, want, got)
			}
		}
	}
}

// Whatever is logged, nothing in the line moves a terminal's cursor or turns its text around.
func TestLinesAreHarmless(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		text := rapid.StringOf(rapid.OneOf(rapid.Rune(), rapid.SampledFrom([]rune("\x1b[2J\u009b\u0085\u202e\u2066\ufeff\U000e0001\x7f\r\n")))).
			Draw(rt, "text")
		for _, format := range []string{"json", "text"} {
			line := logged(LogConfig{Format: format, Level: "info"}, func(l hclog.Logger) {
				l.Named("node").
					Info(text, "value", text, "many", []string{text}, "by", map[string]string{text: text}, text, 1)
			})
			line, ended := strings.CutSuffix(line, "\n")
			if at := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 || !ended {
				rt.Fatalf("%s: %q", format, line)
			}
			var back struct {
				Event, Value string
				Many         []string
				By           map[string]string
			}
			if format == "json" {
				if err := json.Unmarshal([]byte(line), &back); err != nil {
					rt.Fatalf("%q: %v", line, err)
				}
				if back.Event != text || back.Value != text || back.Many[0] != text || len(back.By) != 1 {
					rt.Fatalf("%q comes back as %+v", text, back)
				}
			}
		}
	})
}

// A long value is shortened at a character boundary, and the line stays complete.
func TestHugeValuesAreCut(t *testing.T) {
	huge := strings.Repeat("é", 1<<20)
	for _, format := range []string{"json", "text"} {
		line := logged(LogConfig{Format: format, Level: "info"}, func(l hclog.Logger) {
			l.Info(huge, "text", huge, "error", errors.New(huge), "list", []string{huge}, "bytes", []byte(huge), huge,
				1, "last", "here")
		})
		if len(line) > 8*maxText || !strings.Contains(line, "here") || !utf8.ValidString(line) ||
			!strings.Contains(line, "…") {
			t.Errorf("%s: %d bytes", format, len(line))
		}
		if format == "json" && !json.Valid([]byte(line)) {
			t.Error("a cut value breaks the line")
		}
	}
}
