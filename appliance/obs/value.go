package obs

import (
	"encoding"
	"encoding/hex"
	"fmt"
	"math"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"
)

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
