package obs

import (
	"bytes"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/unit"
)

// stampFormat is RFC 3339 in UTC with milliseconds.
const stampFormat = "2006-01-02T15:04:05.000Z"

// appendJSONLine appends l as a JSON object.
func appendJSONLine(b []byte, l line) []byte {
	b = append(b, `{"ts":"`...)
	b = l.at.UTC().AppendFormat(b, stampFormat)
	b = append(b, `","level":"`...)
	b = append(b, l.level.String()...)
	b = append(b, `","service":`...)
	b = appendJSONString(b, l.service)
	if l.part != "" {
		b = append(b, `,"part":`...)
		b = appendJSONString(b, l.part)
	}
	b = append(b, `,"event":`...)
	b = appendJSONString(b, l.event)
	for _, f := range l.fields {
		b = append(b, ',')
		b = append(appendJSONString(b, f.key), ':')
		if f.bare {
			b = append(b, f.text...)
		} else {
			b = appendJSONString(b, f.text)
		}
	}
	return append(b, '}')
}

// appendTextLine appends l as one line of text for people.
func appendTextLine(b []byte, l line) []byte {
	b = l.at.UTC().AppendFormat(b, time.RFC3339)
	b = append(b, ' ')
	b = append(b, strings.ToUpper(l.level.String())...)
	if l.service != "" {
		b = append(appendPlain(append(b, ' '), l.service), ':')
	}
	b = appendPlain(append(b, ' '), l.event)
	if l.part != "" {
		l.fields = append([]field{{key: "part", text: l.part}}, l.fields...)
	}
	for _, f := range l.fields {
		b = appendPlain(append(b, ' '), f.key)
		b = append(b, '=')
		if f.bare || plain(f.text) {
			b = append(b, f.text...)
		} else {
			b = strconv.AppendQuote(b, f.text)
		}
	}
	return b
}

// appendPlain appends s. It quotes s if it holds characters that do not print or that control a
// terminal.
func appendPlain(b []byte, s string) []byte {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// plain reports whether s can follow key= without quotes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// appendJSONString appends s as a JSON string. Invalid UTF-8 becomes U+FFFD. Invisible characters
// are escaped, such as line separators, terminal controls and marks of text direction, so that a
// line is one line for every reader.
func appendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c < 0x7f && c != '"' && c != '\\' {
			b = append(b, c)
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case unicode.IsPrint(r):
			b = utf8.AppendRune(b, r)
		default:
			b = appendEscaped(b, r)
		}
		i += size
	}
	return append(b, '"')
}

// appendEscaped appends r as a JSON escape, as a surrogate pair if it exceeds 16 bits.
func appendEscaped(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return appendEscaped(appendEscaped(b, high), low)
	}
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// maxText bounds one text of a line, in bytes. A stack trace fits. A request body in an error does
// not fill the ring.
const maxText = 16 << 10

// fieldOf renders v under key, shortened to maxText. It never panics, even if a method of v does.
func fieldOf(key string, v any) (f field) {
	defer func() {
		if recover() != nil {
			f = field{key: key, text: fmt.Sprintf("(%T panicked while printing)", v)}
		}
	}()
	if secretKey(key) {
		return field{key: key, text: hidden}
	}
	text, bare := render(v)
	cut := unit.Clip(text, maxText)
	return field{key: key, text: cut, bare: bare && len(cut) == len(text)}
}

// render returns the text of v, and whether JSON needs no quotes around it.
func render(v any) (text string, bare bool) {
	switch v := v.(type) {
	case nil:
		return "null", true
	case string:
		return v, false
	case bool:
		return strconv.FormatBool(v), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case float64:
		return renderFloat(v)
	case int8, int16, int32, uint, uint8, uint16, uint32:
		return fmt.Sprint(v), true
	case time.Duration:
		return v.String(), false
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano), false
	case []byte:
		return hex.EncodeToString(v), false
	case hclog.Format:
		return renderFormat(v), false
	}
	return renderOther(v)
}

func renderFloat(v float64) (string, bool) {
	finite := !math.IsNaN(v) && !math.IsInf(v, 0)
	return strconv.FormatFloat(v, 'g', -1, 64), finite
}

func renderFormat(v hclog.Format) string {
	if len(v) == 0 {
		return ""
	}
	pattern, ok := v[0].(string)
	if !ok {
		return fmt.Sprint(v...)
	}
	return fmt.Sprintf(pattern, v[1:]...)
}

// renderOther returns the text of a value that has one, or else its JSON. Unlike %v, JSON omits
// unexported fields.
func renderOther(v any) (text string, bare bool) {
	switch v := v.(type) {
	case error:
		return v.Error(), false
	case encoding.TextMarshaler:
		if b, err := v.MarshalText(); err == nil {
			return string(b), false
		}
	case fmt.Stringer:
		return v.String(), false
	}
	doc, err := document(v)
	if err != nil {
		return fmt.Sprintf("(%T)", v), false
	}
	if s, ok := doc.(string); ok {
		return s, false
	}
	return string(appendDocument(nil, doc)), true
}

// document returns the JSON form of v as maps, lists, strings, numbers, bools and nil.
func document(v any) (doc any, err error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&doc)
	return doc, err
}

// appendDocument appends a document. Members with names of secrets are hidden at every depth.
func appendDocument(b []byte, doc any) []byte {
	switch doc := doc.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, name := range slices.Sorted(maps.Keys(doc)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendJSONString(b, name), ':')
			if secretKey(name) {
				b = appendJSONString(b, hidden)
			} else {
				b = appendDocument(b, doc[name])
			}
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, one := range doc {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendDocument(b, one)
		}
		return append(b, ']')
	case string:
		return appendJSONString(b, doc)
	case json.Number:
		return append(b, doc...)
	case bool:
		return strconv.AppendBool(b, doc)
	default:
		return append(b, "null"...)
	}
}
