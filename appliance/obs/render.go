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
)

// stampFormat is RFC 3339 in UTC to the millisecond.
const stampFormat = "2006-01-02T15:04:05.000Z"

// appendJSONLine is l as one JSON object.
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

// appendTextLine is l for people, still one line.
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

// appendPlain writes s, quoted if it holds anything that does not print or that moves a terminal's cursor.
func appendPlain(b []byte, s string) []byte {
	if !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) {
		return strconv.AppendQuote(b, s)
	}
	return append(b, s...)
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// plain reports whether s can stand after key= without quotes.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '"' || c == '=' || c == '\\' {
			return false
		}
	}
	return s != ""
}

// appendJSONString quotes s. Bytes that are not UTF-8 become U+FFFD, and whatever is not to be seen is escaped, such as line separators,
// the controls of terminals and marks that turn the direction of the text: a line stays one line for every reader.
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

// appendEscaped writes r as JSON escapes it: in two halves if it is beyond 16 bits.
func appendEscaped(b []byte, r rune) []byte {
	if high, low := utf16.EncodeRune(r); high != utf8.RuneError {
		return appendEscaped(appendEscaped(b, high), low)
	}
	const digits = "0123456789abcdef"
	return append(b, '\\', 'u', digits[r>>12&15], digits[r>>8&15], digits[r>>4&15], digits[r&15])
}

// maxText bounds one text of a line, in bytes: a stack fits, and a body that got into an error does not fill the ring.
const maxText = 16 << 10

// clip cuts s at a letter, and shows it.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}

// fieldOf renders v under key, cut to maxText. It never panics, whatever v's own methods do.
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
	cut := clip(text, maxText)
	return field{key: key, text: cut, bare: bare && len(cut) == len(text)}
}

// render is the text of v, and whether it stands in JSON without quotes.
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

// renderOther prints what has a text of its own as that, the rest as JSON: unlike %v, that never reaches an unexported Secret.
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

// document is v as JSON has it: maps, lists, texts, numbers, truth values and nil.
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

// appendDocument writes a document as a line has it: members whose names say that they are secrets are hidden, however deep they are.
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
