package registry

import (
	"bytes"
	"fmt"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"ronbox/httpapi"
)

// minEncoded: below it a coding saves less than it costs.
const minEncoded = 1 << 10

// encoder makes answers smaller for clients that take it. It serves any number of goroutines.
type encoder struct {
	zstd *zstd.Encoder
	gzip sync.Pool // of *gzip.Writer
}

func newEncoder() *encoder {
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		panic(fmt.Sprintf("httpapi/registry: zstd options: %v", err)) // constant options: a bug
	}
	return &encoder{zstd: enc, gzip: sync.Pool{New: func() any { return gzip.NewWriter(nil) }}}
}

// send answers body as SendTagged does, in a coding of the client's choice. Each coding has a tag of its own, as its bytes are others.
func (e *encoder) send(c *httpapi.Request, cache, etag string, body []byte) error {
	c.Header().Add("Vary", "Accept-Encoding")
	coding := accepted(c.HTTP().Header["Accept-Encoding"])
	if len(body) < minEncoded || coding == "" {
		return c.SendTagged(cache, etag, body)
	}
	c.Set("Content-Encoding", coding)
	if c.Head() {
		return c.SendTagged(cache, tagOf(etag, coding), nil)
	}
	return c.SendTagged(cache, tagOf(etag, coding), e.encode(coding, body))
}

func tagOf(etag, coding string) string { return strings.TrimSuffix(etag, `"`) + "-" + coding + `"` }

func (e *encoder) encode(coding string, body []byte) []byte {
	if coding == "zstd" {
		return e.zstd.EncodeAll(body, make([]byte, 0, len(body)/4))
	}
	var out bytes.Buffer
	w := e.gzip.Get().(*gzip.Writer)
	defer e.gzip.Put(w)
	w.Reset(&out)
	_, _ = w.Write(body) // into memory: cannot fail
	_ = w.Close()
	return out.Bytes()
}

// accepted is the coding to answer in: zstd or gzip, whichever the client likes better, "" for none.
func accepted(lines []string) string {
	switch z, g := httpapi.Weight(lines, "zstd"), httpapi.Weight(lines, "gzip"); {
	case z > 0 && z >= g:
		return "zstd"
	case g > 0:
		return "gzip"
	}
	return ""
}
