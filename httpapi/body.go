package httpapi

import (
	"bytes"
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/unit"
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

// mediaError holds the required type of a body.
type mediaError struct{ want string }

func (e *mediaError) Error() string { return "body must be " + e.want + ", not encoded" }

// ErrBodyTooLarge is returned for a body larger than the cap, before decompression.
var ErrBodyTooLarge = errors.New(
	"body is too large: it may be as long as server.max_body_bytes, the service, or the token, allows; " +
		"nothing was done",
)

// checkContent refuses a body because of its headers.
func checkContent(_ *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		if err := c.checkFraming(); err != nil {
			return err
		}
		return next(c)
	}
}

// maxBody returns the cap of the route, or else of the service and the node, or that of the
// caller's token if it is lower.
func (r *Request) maxBody() int64 {
	most := cmp.Or(r.route.MaxBody, r.bodyLimits().Bytes)
	if allowed, limited := r.actor.Grant.MaxBytes(); limited {
		return min(allowed, most)
	}
	return most
}

// bodyLimits returns the bounds of bodies of routes without their own.
func (r *Request) bodyLimits() BodyLimits { return r.service.limits.Load().Body.within(r.settings) }

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
		plain := r.route.Media == TypeBytes && r.r.Header.Get("Content-Type") == "" // as curl -T sends a file
		if r.MediaType() != r.route.Media && !plain || r.r.Header["Content-Encoding"] != nil {
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

// declared returns the declared media type, or "" if it is invalid. Most callers send just
// application/json.
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

// checkEncoding refuses encodings that expand does not support.
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

// readBody reads the whole body. Its length is bounded before and after decompression. The read
// timeout set by account applies to all of it: a timeout per byte would let a slow client hold its
// slot for days. net/http lifts the timeout at the end of the body, when it begins to watch for a
// client that leaves.
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

// readAll reads the whole body without decompression. A chunked body is read up to the cap as well,
// so that an endless one is refused because of its size.
func (r *Request) readAll() ([]byte, error) {
	sent := &wireBody{r: r.r.Body, left: r.maxBody()}
	if r.r.ContentLength < 0 {
		return io.ReadAll(sent)
	}
	body := make([]byte, r.r.ContentLength) // bounded by checkContent
	_, err := io.ReadFull(sent, body)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errBodyCut
	}
	return body, err
}

// expand decompresses a body, within its bounds. It runs at most once per processor at a time,
// because each may need a window of 8 MiB. It does not wait for the client meanwhile.
func (s *Server) expand(c *Request, sent []byte, encoding string) ([]byte, error) {
	if err := s.expanding.Acquire(c.Context()); err != nil {
		return nil, err
	}
	defer s.expanding.Release()
	most := c.bodyLimits()
	r, err := inflate.Reader(bytes.NewReader(sent), encoding, most.Ratio, most.Inflated)
	if err != nil {
		return nil, errEncoding
	}
	body, err := io.ReadAll(r)
	return body, errors.Join(err, r.Close())
}

// openBody passes the body to the handler as a stream. The read timeout bounds each read, and the
// deadline bounds all reads together.
func openBody(_ *Server, _ *boundRoute, next Handler) Handler {
	return func(c *Request) error {
		pieces := &bodyPieces{wireBody{r: c.r.Body, left: c.maxBody()}, c}
		c.stream = pieces
		err := next(c)
		c.bodyOver = pieces.over
		if err != nil {
			c.Header().Set("Connection", "close") // the rest of the body is not read
		}
		return err
	}
}

// bodyPieces is a body with a deadline for each read.
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

// wireBody is a body before decompression. It returns at most left bytes, and converts errors to
// those of this package.
type wireBody struct {
	r    io.Reader
	left int64
	over bool // the body has ended or failed
}

func (b *wireBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // one byte more shows whether there is more
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

// maxDepth is the largest nesting depth of arrays and objects in a body.
const maxDepth = 32

// BodyError names the member of a body that is wrong, as a dotted path, and the reason. It never
// contains a value.
type BodyError struct{ Field, Reason string }

func (e *BodyError) Error() string {
	if e.Field == "" {
		return "body: " + e.Reason
	}
	return e.Field + ": " + e.Reason
}

// Decode decodes the whole body into v. It refuses unknown, repeated and wrongly typed members,
// null, bytes after the value, invalid UTF-8 and deep nesting, and names the member.
func Decode(body []byte, v any) error {
	if err := scan(body); err != nil {
		return err
	}
	return unmarshal(body, v)
}

// DecodeTyped is Decode for a v without raw members, and faster for a large body: the types of v
// bound the nesting, so the tokens are scanned only if the body may contain null, or to name an
// error.
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

// scan checks all tokens of body, including those of raw members.
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

// jsonFault names the member that the decoder refused.
func jsonFault(err error) *BodyError {
	var syn *jsontext.SyntacticError
	var sem *json.SemanticError
	var own *BodyError
	switch {
	case errors.As(err, &syn):
		return &BodyError{dotted(syn.JSONPointer), syntaxReason(syn)}
	case errors.As(err, &sem) && errors.Is(sem.Err, json.ErrUnknownName):
		return &BodyError{dotted(sem.JSONPointer), "is not a known member" + likeMember(sem)}
	case errors.As(err, &sem) && errors.As(sem.Err, &own):
		return &BodyError{strings.Trim(dotted(sem.JSONPointer)+"."+own.Field, "."), own.Reason}
	case errors.As(err, &sem):
		return &BodyError{dotted(sem.JSONPointer), typeReason(sem)}
	}
	return &BodyError{"", "is not valid JSON"}
}

// likeMember returns the end of a sentence that names the known member most like an unknown one, or
// "" if there is none.
func likeMember(err *json.SemanticError) string {
	if err.GoType == nil || err.GoType.Kind() != reflect.Struct {
		return ""
	}
	var known []string
	for _, f := range reflect.VisibleFields(err.GoType) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		known = append(known, name)
	}
	if near := unit.Nearest(err.JSONPointer.LastToken(), known); near != "" {
		return "; did you mean " + near + "?"
	}
	return ""
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
	return fmt.Sprintf("is not valid JSON at byte %d", err.ByteOffset)
}

// typeReason describes the required type of a member. Bodies have no other types.
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

// dotted formats a JSON pointer as a dotted path such as items.3.id.
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
