package client

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"ronbox/httpapi/wire"
)

// Whatever is answered with a refusal's status, the caller gets a problem with that status and a
// reason.
func FuzzProblem(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"reason":"busy"}`, `{"reason":"busy","status":1,"details":{"outcome":"unknown"}}`, `{"reason":null}`, `{"reason":"a","reason":"b"}`,
		`[]`, `{"retry_after":1e99}`, "\xff", `{"details":{"a":{"a":{"a":[]}}},"reason":"x"}`,
	} {
		f.Add(s, wire.ProblemType, 429)
		f.Add(s, "application/problem+json ; charset=utf-8", 500)
		f.Add(s, "text/html", 502)
	}
	f.Fuzz(func(t *testing.T, body, typ string, status int) {
		c := &Client{hosts: &hosts{}, where: "here"}
		resp := &http.Response{
			StatusCode: status,
			Header:     http.Header{"Content-Type": {typ}},
			Body:       io.NopCloser(strings.NewReader(body)),
		}
		err := c.decodeProblem(resp)
		p, ok := errors.AsType[*wire.Problem](err)
		if !ok || p.Status != status || p.Reason == "" || err.Error() == "" {
			t.Fatalf("decodeProblem(%q) = %#v", body, err)
		}
		_ = Retryable(err)
	})
}

// Lines of progress never make the reader panic, and end with an error or with the end.
func FuzzLines(f *testing.F) {
	for _, s := range []string{"", "{}\n", `{"done":1}` + "\n" + `{"file":"f"}` + "\n", "\n", "{", "null\n", "{}{}\n", `{"problem":{"status":1}}` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bufio.NewReader(bytes.NewReader(in))
		for range bytes.Count(in, []byte("\n")) + 1 {
			if _, err := readLine[map[string]any](r); err != nil {
				return
			}
		}
		t.Fatal("more lines than ends of lines")
	})
}

// Lines of an export are told as they are, and all of them but the empty ones, or the reader says
// why not.
func FuzzExportLines(f *testing.F) {
	for _, s := range []string{"", "{}\n", "{}\n{}\n", "{", "\n\n", `{"problem":{"status":1}}` + "\n{}\n", `{"problem":1}` + "\n", `{"problem":` + "\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var told []byte
		err := eachLine(bytes.NewReader(in), func(line []byte) error {
			told = append(append(told, line...), '\n')
			return nil
		})
		var said []byte
		for line := range bytes.Lines(in) {
			if string(line) != "\n" {
				said = append(said, line...)
			}
		}
		if !bytes.HasPrefix(said, told) || err == nil && !bytes.Equal(said, told) {
			t.Fatalf("%q told as %q, %v", in, told, err)
		}
	})
}
