package httpapi

import (
	"bytes"
	"flag"
	"io"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/openapi/openapitest"
)

// checker holds answers against the document, which is the same for every server.
var checker struct {
	sync.Once
	*openapitest.Checker
}

// described fails the test unless the document describes the answer. Every answer that a test gets through the rig
// passes here.
func (r *rig) described(req *http.Request, status int, h http.Header, body []byte) {
	r.t.Helper()
	checker.Do(func() { checker.Checker = openapitest.New(r.t, r.doc.JSON()) })
	if !r.undescribed {
		checker.Response(r.t, req, status, h, body)
	}
}

// describedTransport looks at the answers that come over the network, once their bodies are read or left.
type describedTransport struct {
	http.RoundTripper
	rig *rig
}

func (d describedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = &describedBody{ReadCloser: resp.Body, done: func(body []byte) {
			d.rig.described(req, resp.StatusCode, resp.Header, body)
		}}
	}
	return resp, err
}

// describedBody keeps what is read. What is left unread is not looked at.
type describedBody struct {
	io.ReadCloser
	seen  bytes.Buffer
	ended bool
	done  func([]byte)
	once  sync.Once
}

func (b *describedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen.Write(p[:n])
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *describedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() {
		if b.ended {
			b.done(b.seen.Bytes())
		}
	})
	return err
}

var update = flag.Bool("update", false, "rewrite the golden files")

const goldenDocument = "../testdata/golden/openapi.json"

// Whatever the surface gains or loses shows in the golden file.
func TestDocumentGolden(t *testing.T) {
	want := jsontext.Value(newRig(t).doc.JSON()).Clone()
	if err := want.Indent(jsontext.WithIndent(" ")); err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(goldenDocument, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(goldenDocument)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the table: run the test with -update and read the diff", goldenDocument)
	}
}

// Each operation of the document has a row, and each row an operation.
func TestEveryRouteIsDescribed(t *testing.T) {
	r := newRig(t)
	r.do(http.MethodGet, "/healthz", "", nil)
	if got, want := len(checker.Operations()), len(r.routes); got != want {
		t.Errorf("%d operations for %d routes", got, want)
	}
}
