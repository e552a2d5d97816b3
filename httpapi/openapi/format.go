package openapi

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// dateTime matches the part of RFC 3339 that all its forms share.
const dateTime = `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}`

// formatOf returns the regular expression of a syntax named in a format tag, and an example.
func formatOf(name string) (pattern, example string, known bool) {
	name, optional := strings.CutSuffix(name, "?")
	const ulid = `[0-7][0-9A-HJKMNP-TV-Z]{25}`
	hash := strings.Repeat("0123456789abcdef", 4)
	switch name {
	case "b3": // a BLAKE3 digest
		pattern, example = `b3:[0-9a-f]{64}`, "b3:"+hash
	case "sha256": // the root of a Merkle tree
		pattern, example = `sha256:[0-9a-f]{64}`, "sha256:"+hash
	case "ulid":
		pattern, example = ulid, "01KDYAK3SE000000000000BFQF"
	case "amount": // decimal minor units, at most 39 digits
		pattern, example = `(0|[1-9][0-9]{0,38})`, "1200"
	case "positive": // an amount above 0
		pattern, example = `[1-9][0-9]{0,38}`, "1200"
	case "account": // of the ledger
		pattern, example = `[A-Za-z0-9:/_-]{1,256}`, "alice"
	case "asset":
		pattern, example = `[a-z0-9]{1,16}`, "ron"
	case "txid": // a ULID with a prefix
		pattern, example = `tx_`+ulid, "tx_01KDYAK3SE000000000000BFQF"
	case "duration": // "1h30m", "30d"
		pattern, example = `0|([0-9]+(d|h|m|s|ms|us|ns))+`, "1h30m"
	case "sig": // 64 bytes in standard base64
		pattern, example = `[A-Za-z0-9+/]{86}==`, strings.Repeat("A", 86)+"=="
	case "time": // RFC 3339 in UTC, in the form that was hashed
		pattern, example = dateTime+`(\.[0-9]{1,9})?Z`, "2026-01-02T03:04:05.678Z"
	case "instant": // RFC 3339
		pattern, example = dateTime+`(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})`, "2026-01-02T03:04:05Z"
	case "version": // of a schema
		pattern, example = `[0-9]+\.[0-9]+\.[0-9]+`, "1.0.0"
	default:
		return "", "", false
	}
	if optional {
		return "^(" + pattern + ")?$", example, true
	}
	return "^(" + pattern + ")$", example, true
}

// exampleDepth is the largest depth with lists in an example, because a type may contain itself.
const exampleDepth = 6

// example appends a value that s permits. Of an object it includes required members and those with
// an example.
func (g *generator) example(dst []byte, s *schema, depth int) []byte {
	if s.Ref != "" {
		return g.example(dst, g.defs[strings.TrimPrefix(s.Ref, g.prefix)], depth)
	}
	var one any
	switch {
	case len(s.Examples) > 0:
		one = s.Examples[0]
	case len(s.AnyOf) > 0:
		return g.example(dst, s.AnyOf[0], depth)
	case len(s.Enum) > 0:
		one = s.Enum[0]
	case s.Type == "object":
		dst = append(dst, '{')
		for _, p := range s.Properties {
			if p.shown {
				dst, _ = jsontext.AppendQuote(dst, p.name)
				dst = append(g.example(append(dst, ':'), p.schema, depth), ',')
			}
		}
		return append(trimComma(dst), '}')
	case s.Type == "array" && depth < exampleDepth:
		return append(g.example(append(dst, '['), s.Items, depth+1), ']')
	case s.Type == "array":
		return append(dst, "[]"...)
	case s.Type == "integer":
		n := uint64(1)
		if s.Minimum != nil {
			n = max(n, *s.Minimum)
		}
		return strconv.AppendUint(dst, n, 10)
	case s.Type == "number":
		return append(dst, "0.5"...)
	case s.Type == "boolean":
		return append(dst, "true"...)
	case s.Format == "date-time":
		one = "2026-01-02T03:04:05Z"
	case s.Encoding == "base64":
		one = "cm9uYm94"
	case s.Type == "string":
		one = "text"
	default:
		return append(dst, "{}"...)
	}
	raw, _ := marshal(one) // a text, or a JSON value from a tag
	return append(dst, raw...)
}

func trimComma(b []byte) []byte {
	if b[len(b)-1] == ',' {
		return b[:len(b)-1]
	}
	return b
}
