package registry

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/httpapi"
	registryapi "ronbox/httpapi/wire/registry"
)

const (
	maxProposalPage = 100
	maxAuditPage    = 1000
	versionPage     = 20
	maxVersionPage  = 100
)

// handlers serve the routes of the registry.
type handlers struct {
	reg       Engine
	encoder   *encoder
	discovery *discovery
}

// answer sends a result of the engine that a cache must revalidate.
func answer(c *httpapi.Request, v any, err error) error {
	if err != nil {
		return err
	}
	return c.RespondCached(http.StatusOK, httpapi.CacheAsk, v)
}

// done sends the result of a write.
func done(c *httpapi.Request, v any, err error) error {
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, v)
}

// byNumber returns the handler of a read by a number in the path, 0 if the path has none.
func byNumber[T any](param string, read func(ctx context.Context, n uint64) (T, error)) httpapi.Handler {
	return func(c *httpapi.Request) error {
		v, err := read(c.Context(), c.NumberParam(param))
		return answer(c, v, err)
	}
}

// Query parameters of versions, proposals and the audit chain.
var (
	withItems = httpapi.Flag("items", true, "0 omits the items")

	versionsBefore = httpapi.Number("before", 0, 1, httpapi.MaxNumber, "versions below this one")
	versionsLimit  = httpapi.Number("limit", versionPage, 1, maxVersionPage, "versions of a page")

	diffFrom = httpapi.Number("from", 0, 0, httpapi.MaxNumber, "the first version; 0: the empty set").Required()
	diffTo   = httpapi.Number("to", 0, 0, httpapi.MaxNumber, "the second version").Required()

	proposalsCursor = httpapi.Checked(httpapi.Text("cursor", "next of the previous page"), "",
		"must be one that this list gave", isProposalID)
	proposalsLimit = httpapi.Number("limit", maxProposalPage, 1, maxProposalPage, "rows of a page")

	auditFrom  = httpapi.Number("from", 1, 1, httpapi.MaxNumber, "sequence number of the first record")
	auditLimit = httpapi.Number("limit", maxAuditPage, 1, maxAuditPage, "records of a page")
)

// tagged sends bytes of the engine unchanged, under their hash.
func tagged(c *httpapi.Request, cache string, raw []byte, err error) error {
	if err != nil {
		return err
	}
	return c.SendTagged(cache, httpapi.TagOf(raw), raw)
}

// getHead sends bytes that were encoded when HEAD moved.
func (h handlers) getHead(c *httpapi.Request) error {
	head := h.reg.Head()
	return c.SendTagged(httpapi.CacheAsk, head.ETag, head.JSON)
}

func (h handlers) getVersion(c *httpapi.Request) error {
	items, err := withItems.Of(c)
	if err != nil {
		return err
	}
	doc, err := h.reg.Version(c.Context(), c.NumberParam(paramVersion), items)
	if err != nil {
		return err
	}
	return h.encoder.send(c, httpapi.CacheForever, doc.ETag, doc.JSON)
}

// getVersions serves GET /registry/versions from the log entries. It ends the page at a version
// that retention removes meanwhile.
func (h handlers) getVersions(c *httpapi.Request) error {
	before, err := versionsBefore.Of(c)
	limit, errLimit := versionsLimit.Of(c)
	if err := cmp.Or(err, errLimit); err != nil {
		return err
	}
	head := h.reg.Head()
	newest, oldest := head.Head.Version, max(head.MinVersion, 1)
	if before > 0 {
		newest = min(newest, before-1)
	}
	out := registryapi.VersionList{Versions: []registryapi.VersionLine{}}
	for v := newest; v >= oldest; v-- {
		if uint64(len(out.Versions)) == limit {
			out.Next = v + 1
			break
		}
		line, err := h.versionLine(c.Context(), v)
		if errors.Is(err, document.ErrPruned) {
			break
		}
		if err != nil {
			return err
		}
		out.Versions = append(out.Versions, line)
	}
	return answer(c, out, nil)
}

// versionLine reads one version of a list.
func (h handlers) versionLine(ctx context.Context, v uint64) (registryapi.VersionLine, error) {
	raw, err := h.reg.EntryBytes(ctx, v)
	if err != nil {
		return registryapi.VersionLine{}, err
	}
	entry, err := record.ParseEntry(raw)
	if err != nil {
		return registryapi.VersionLine{}, fmt.Errorf("entry of version %d: %w", v, err)
	}
	line := registryapi.VersionLine{
		Version: v, Kind: entry.Kind, PayloadB3: entry.PayloadB3, Hash: entry.Hash(),
		CommittedAt: entry.CommittedAt, ProposalID: entry.ProposalID, Signers: make([]string, len(entry.Approvals)),
	}
	for i, a := range entry.Approvals {
		line.Signers[i] = a.SignerID
	}
	return line, nil
}

// getBytes serves the exact payload or log entry of a version.
func getBytes(read func(ctx context.Context, v uint64) ([]byte, error)) httpapi.Handler {
	return func(c *httpapi.Request) error {
		raw, err := read(c.Context(), c.NumberParam(paramVersion))
		return tagged(c, httpapi.CacheForever, raw, err)
	}
}

func (h handlers) getDiff(c *httpapi.Request) error {
	from, err := diffFrom.Of(c)
	to, errTo := diffTo.Of(c)
	if err := cmp.Or(err, errTo); err != nil {
		return err
	}
	d, err := h.reg.Diff(c.Context(), from, to)
	return answer(c, d, err)
}

func (h handlers) getAudit(c *httpapi.Request) error {
	from, err := auditFrom.Of(c)
	limit, errLimit := auditLimit.Of(c)
	if err := cmp.Or(err, errLimit); err != nil {
		return err
	}
	page, err := h.reg.Audit(c.Context(), from, int(limit))
	return answer(c, page, err)
}

// getStream follows the registry.
func (h handlers) getStream(c *httpapi.Request) error { return httpapi.Follow(c, Stream(h.reg)) }

// Stream returns the event stream of the registry.
func Stream(reg Events) *httpapi.Source[registryapi.Update] {
	return &httpapi.Source[registryapi.Update]{
		Event: registryapi.EventUpdate, Consumer: "sse", Subscribe: reg.Subscribe, Since: reg.Since,
		Head: func(context.Context) (httpapi.LogHead, error) {
			at := reg.Head()
			if err := reg.Emits(); err != nil {
				return httpapi.LogHead{}, err
			}
			return httpapi.LogHead{First: at.MinVersion, Last: at.Head.Version, Value: at}, nil
		},
		ID:     func(e registryapi.Update) uint64 { return e.Version },
		Hello:  hello,
		Lagged: lagged,
	}
}

func hello(at httpapi.LogHead) any {
	head := headOf(at)
	return registryapi.Hello{Incarnation: head.Incarnation, Head: head}
}

func lagged(m httpapi.Missed, at httpapi.LogHead) any {
	return registryapi.Lagged{Missed: m.Count, From: m.From, To: m.To, Head: headOf(at)}
}

// headOf returns the HEAD that belongs to a place in the log.
func headOf(at httpapi.LogHead) registryapi.Head {
	return registryapi.Head(at.Value.(*tables.HeadView).Doc())
}

// minEncoded is the size below which a coding saves less than it costs.
const minEncoded = 1 << 10

// encoder compresses answers for clients that accept it. It is safe for concurrent use.
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

// send sends body as SendTagged does, in a coding that the client prefers. Each coding has its own
// tag, because its bytes differ.
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

// accepted returns the coding of the answer: zstd or gzip, whichever the client prefers, or "" for
// none.
func accepted(lines []string) string {
	switch z, g := httpapi.Weight(lines, "zstd"), httpapi.Weight(lines, "gzip"); {
	case z > 0 && z >= g:
		return "zstd"
	case g > 0:
		return "gzip"
	}
	return ""
}
