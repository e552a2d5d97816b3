package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding"
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/httpapi/inflate"
)

var (
	errLength    = errors.New("Content-Length is required")
	errMediaType = errors.New("body must be application/json in UTF-8; that of /v1/batch may be application/cbor")
	errEncoding  = errors.New("body may be encoded with gzip or zstd only")
	errNested    = errors.New("body may be encoded once only")
	errBodySlow  = errors.New("body did not arrive in time")
	errBodyCut   = errors.New("body is cut short")
	errNoBody    = errors.New("this route takes no body")
)

// mediaError says what a body must be.
type mediaError struct{ want string }

func (e *mediaError) Error() string { return "body must be " + e.want + ", not encoded" }

// ErrBodyTooLarge is a body beyond the cap, as it is sent.
var ErrBodyTooLarge = errors.New("body is too large: it may be as long as server.max_body_bytes, or the token, allows; nothing was done")

// checkContent refuses what the headers of a body already tell.
func checkContent(_ *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if err := c.checkFraming(); err != nil {
			return err
		}
		return next(c)
	}
}

// maxBody is the route's cap, or else the node's, or what the caller's token allows if that is less.
func (r *Request) maxBody() int64 {
	most := cmp.Or(r.route.MaxBody, r.settings.maxBody)
	if allowed, limited := r.actor.Grant.MaxBytes(); limited {
		return min(allowed, most)
	}
	return most
}

func (r *Request) checkFraming() error {
	want, sent := r.route.Body, r.r.ContentLength
	switch {
	case want == NoBody && sent != 0:
		return errNoBody
	case want == NoBody || want == OptionJSON && sent == 0:
		return nil
	case sent == 0 && r.r.Header.Get("Content-Length") == "" && want.sized():
		return errLength
	case want == StreamBody:
		if r.MediaType() != r.route.Media || r.r.Header["Content-Encoding"] != nil {
			return &mediaError{r.route.Media}
		}
	case want.either() && r.MediaType() == TypeCBOR:
	case !isJSON(r.r):
		return errMediaType
	}
	if sent > r.maxBody() {
		return ErrBodyTooLarge
	}
	return checkEncoding(r.r)
}

// isJSON reports whether the body is declared as JSON.
func isJSON(r *http.Request) bool {
	kind, params := declared(r)
	charset, ok := params["charset"]
	return kind == TypeJSON && (!ok || strings.EqualFold(charset, "utf-8"))
}

// declared is what the body is said to be, "" for what cannot be read. Most callers say no more than application/json.
func declared(r *http.Request) (kind string, params map[string]string) {
	v := r.Header.Get("Content-Type")
	if v == TypeJSON {
		return v, nil
	}
	kind, params, err := mime.ParseMediaType(v)
	if err != nil {
		return "", nil
	}
	return kind, params
}

// checkEncoding lets through what expand can undo.
func checkEncoding(r *http.Request) error {
	lines := r.Header["Content-Encoding"]
	switch {
	case len(lines) == 0:
		return nil
	case len(lines) > 1 || strings.Contains(lines[0], ","):
		return errNested
	}
	probe, err := inflate.Reader(nil, lines[0], 1, 1)
	if err != nil {
		return errEncoding
	}
	return probe.Close()
}

// readBody reads the body, at most the cap as it is sent and, if it is encoded, as it is after that. The read timeout
// that account has set is for all of it: one that began anew with each byte would let a drip hold its slot for days. net/http
// lifts it at the end of the body, when it begins to watch for a client that leaves.
func readBody(s *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		body, err := c.readAll()
		c.bodyOver = !errors.Is(err, ErrBodyTooLarge)
		if encoding := c.r.Header.Get("Content-Encoding"); err == nil && encoding != "" {
			body, err = s.expand(c, body, encoding)
		}
		if err != nil {
			c.Header().Set("Connection", "close")
			return err
		}
		if c.r.ContentLength < 0 && b.route.Body.sized() {
			return errLength
		}
		c.body = body
		return next(c)
	}
}

// readAll reads the whole body as it is sent. A chunked one is read to the cap too, so that an endless one is refused for its size.
func (r *Request) readAll() ([]byte, error) {
	sent := &wireBody{r: r.r.Body, left: r.maxBody()}
	if r.r.ContentLength < 0 {
		return io.ReadAll(sent)
	}
	body := make([]byte, r.r.ContentLength) // bounded: checkContent refused more than the cap
	_, err := io.ReadFull(sent, body)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errBodyCut
	}
	return body, err
}

// expand undoes the encoding of a whole body, counting as it goes. One for each processor does so at a time: each may take
// a window of 8 MiB, and none waits for its client meanwhile.
func (s *Server) expand(c *Request, sent []byte, encoding string) ([]byte, error) {
	select {
	case s.expanding <- struct{}{}:
		defer func() { <-s.expanding }()
	case <-c.Context().Done():
		return nil, context.Cause(c.Context())
	}
	r, err := inflate.Reader(bytes.NewReader(sent), encoding, c.settings.ratio, c.settings.maxInflated)
	if err != nil {
		return nil, errEncoding
	}
	body, err := io.ReadAll(r)
	return body, errors.Join(err, r.Close())
}

// openBody gives the body to the handler as it comes: each piece within the read timeout, all of it within the deadline.
func openBody(_ *Server, _ *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		pieces := &bodyPieces{wireBody{r: c.r.Body, left: c.maxBody()}, c}
		c.stream = pieces
		err := next(c)
		c.bodyOver = pieces.over
		if err != nil {
			c.Header().Set("Connection", "close") // what is left of the body is not waited for
		}
		return err
	}
}

// bodyPieces is a body whose every piece has a read deadline of its own.
type bodyPieces struct {
	wireBody
	c *Request
}

func (b *bodyPieces) Read(p []byte) (int, error) {
	due := time.Now().Add(b.c.settings.read)
	if at := b.c.deadline; !at.IsZero() && at.Before(due) {
		due = at
	}
	if err := b.c.control().SetReadDeadline(due); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return 0, errBodyCut
	}
	return b.wireBody.Read(p)
}

// wireBody is a body as it is sent. It gives at most left bytes, and says in our words why it ends early.
type wireBody struct {
	r    io.Reader
	left int64
	over bool // nothing more comes
}

func (b *wireBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one byte more shows that there is more
	}
	n, err := b.r.Read(p)
	b.left -= int64(n)
	switch {
	case b.left < 0:
		return 0, ErrBodyTooLarge
	case err == nil:
		return n, nil
	}
	b.over = true
	switch {
	case err == io.EOF:
		return n, err
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, errBodySlow
	}
	return n, errBodyCut
}

// maxDepth is how deeply the arrays and objects of a body may nest.
const maxDepth = 32

// BodyError says which member of a body, as a dotted path, is wrong and how. Its text never repeats a value.
type BodyError struct{ Field, Reason string }

func (e *BodyError) Error() string {
	if e.Field == "" {
		return "body: " + e.Reason
	}
	return e.Field + ": " + e.Reason
}

// Decode reads the whole of body into v, strictly: an unknown, repeated or wrongly typed member, a null, bytes after
// the value, bad UTF-8 and deep nesting are refused, and the member is named.
func Decode(body []byte, v any) error {
	if err := scan(body); err != nil {
		return err
	}
	return unmarshal(body, v)
}

// DecodeTyped is Decode into a v that keeps no member raw, and faster for a large body: the types of v bound how deeply the body
// nests, so that its tokens are walked only if there may be a null among them, or to name a fault.
func DecodeTyped(body []byte, v any) error {
	err := unmarshal(body, v)
	if err == nil && !bytes.Contains(body, []byte("null")) {
		return nil
	}
	if fault := scan(body); fault != nil {
		return fault
	}
	return err
}

func unmarshal(body []byte, v any) error {
	if err := json.Unmarshal(body, v, json.RejectUnknownMembers(true)); err != nil {
		return jsonFault(err)
	}
	return nil
}

// scan walks the tokens of body, members that stay raw included.
func scan(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(body))
	if dec.PeekKind() != '{' {
		if len(bytes.TrimSpace(body)) == 0 {
			return &BodyError{"", "is empty"}
		}
		return &BodyError{"", "must be one JSON object"}
	}
	for {
		tok, err := dec.ReadToken()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return jsonFault(err)
		}
		if dec.StackDepth() > maxDepth {
			return &BodyError{dotted(dec.StackPointer()), "is nested too deeply"}
		}
		if tok.Kind() == 'n' {
			return &BodyError{dotted(dec.StackPointer()), "must not be null"}
		}
	}
}

// jsonFault names the member that the reader refused.
func jsonFault(err error) *BodyError {
	var syn *jsontext.SyntacticError
	var sem *json.SemanticError
	var own *BodyError
	switch {
	case errors.As(err, &syn):
		return &BodyError{dotted(syn.JSONPointer), syntaxReason(syn)}
	case errors.As(err, &sem) && errors.Is(sem.Err, json.ErrUnknownName):
		return &BodyError{dotted(sem.JSONPointer), "is not a known member"}
	case errors.As(err, &sem) && errors.As(sem.Err, &own):
		return &BodyError{strings.Trim(dotted(sem.JSONPointer)+"."+own.Field, "."), own.Reason}
	case errors.As(err, &sem):
		return &BodyError{dotted(sem.JSONPointer), typeReason(sem)}
	}
	return &BodyError{"", "is not valid JSON"}
}

func syntaxReason(err *jsontext.SyntacticError) string {
	switch {
	case errors.Is(err, jsontext.ErrDuplicateName):
		return "is given more than once"
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "ends too early"
	case strings.Contains(err.Error(), "UTF-8"):
		return "is not valid UTF-8"
	}
	return "is not valid JSON"
}

// typeReason says what the member must be instead. The bodies hold no other types.
func typeReason(err *json.SemanticError) string {
	if err.JSONKind == 0 || err.GoType == nil {
		return "has a wrong value"
	}
	if reflect.PointerTo(err.GoType).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "must be a string"
	}
	switch err.GoType.Kind() {
	case reflect.String:
		return "must be a string"
	case reflect.Uint64:
		return "must be a whole number below 2^64"
	case reflect.Slice:
		return "must be an array"
	case reflect.Struct:
		return "must be an object"
	}
	return "has a wrong type"
}

// dotted spells a JSON pointer as people name members: items.3.id.
func dotted(p jsontext.Pointer) string {
	var b strings.Builder
	for tok := range p.Tokens() {
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(Clip(tok))
	}
	return b.String()
}
