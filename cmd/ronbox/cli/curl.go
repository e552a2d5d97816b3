package cli

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"ronbox/appliance/unit"
	"ronbox/httpapi/wire"
)

// reasonPrinted is the reason of the refusal that ends a verb after its request was printed.
const reasonPrinted = "printed"

// mostPrinted bounds a body in a printed command line.
const mostPrinted = 32 << 10

// curl prints the first request of a verb as a command line instead of sending it. The answer to
// each request is a refusal that no verb repeats.
type curl struct {
	a      *App
	socket string
}

// RoundTrip implements http.RoundTripper.
func (c *curl) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
		_ = r.Body.Close() // all of it is read
	}
	if !c.a.printed {
		c.a.printed = true
		if err := c.a.Print([]byte(c.line(r, body) + "\n")); err != nil {
			return nil, err
		}
	}
	problem := `{"reason":"` + reasonPrinted + `","title":"Printed, not sent"}`
	return &http.Response{
		StatusCode: http.StatusTeapot, Header: http.Header{"Content-Type": {wire.ProblemType}},
		Body: io.NopCloser(strings.NewReader(problem)), Request: r,
	}, nil
}

// line returns the command line. The shell reads the token from its file.
func (c *curl) line(r *http.Request, body []byte) string {
	words := []string{"curl", "-sS"}
	if c.socket != "" {
		words = append(words, "--unix-socket", unit.Shell(c.socket))
	}
	if c.a.Flags.CAFile != "" {
		words = append(words, "--cacert", unit.Shell(c.a.Flags.CAFile))
	}
	implied := http.MethodGet
	if len(body) > 0 {
		implied = http.MethodPost
	}
	if r.Method != implied {
		words = append(words, "-X", r.Method)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		switch name {
		case "User-Agent", "X-Corr-Id":
		case "Authorization":
			words = append(words, "-H", `"Authorization: Bearer $(cat `+unit.Shell(absolute(c.a.Flags.TokenFile))+`)"`)
		default:
			words = append(words, "-H", unit.Shell(name+": "+strings.Join(r.Header[name], ", ")))
		}
	}
	switch {
	case len(body) == 0:
	case len(body) > mostPrinted || !utf8.Valid(body) || bytes.ContainsRune(body, 0):
		words = append(words, "--data-binary", "@BODY") // a file of the caller
	default:
		words = append(words, "--data-raw", unit.Shell(string(body)))
	}
	return strings.Join(append(words, unit.Shell(r.URL.String())), " ")
}

// absolute returns an absolute path, or path if the working directory is not known.
func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		return abs
	}
	return path
}

// wasPrinted reports whether err is the end of a verb whose request was printed.
func wasPrinted(err error) bool {
	p, ok := errors.AsType[*wire.Problem](err)
	return ok && p.Reason == reasonPrinted
}

// NoRequest is the failure of --print-curl for a verb that does not begin with a request.
func NoRequest() error {
	return Fail(ExitUsage, "usage", "--print-curl is for commands that ask a node", "%s",
		"nothing was done: this command does not begin with a request that could be printed")
}
