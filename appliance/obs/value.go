package obs

import (
	"encoding"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
)

// fieldOf renders v under key. It never panics, whatever v's own methods do.
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
	return field{key: key, text: text, bare: bare}
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
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprintf("(%T)", v), false
	}
	return string(b), true
}
