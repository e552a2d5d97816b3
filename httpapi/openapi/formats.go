package openapi

import "strings"

// formatPattern is the regular expression of a spelling named in a format tag.
func formatPattern(name string) (pattern string, known bool) {
	name, optional := strings.CutSuffix(name, "?")
	switch name {
	case "b3": // a BLAKE3 digest
		pattern = `b3:[0-9a-f]{64}`
	case "sha256": // a root of a Merkle tree
		pattern = `sha256:[0-9a-f]{64}`
	case "ulid":
		pattern = `[0-7][0-9A-HJKMNP-TV-Z]{25}`
	case "amount": // decimal minor units, at most 39 digits
		pattern = `(0|[1-9][0-9]{0,38})`
	case "positive": // an amount above 0
		pattern = `[1-9][0-9]{0,38}`
	case "account": // of the wallet
		pattern = `[A-Za-z0-9:/_-]{1,256}`
	case "asset":
		pattern = `[a-z0-9]{1,16}`
	case "txid": // a ULID behind a prefix
		pattern = `tx_[0-7][0-9A-HJKMNP-TV-Z]{25}`
	case "duration": // "1h30m", "30d"
		pattern = `0|([0-9]+(d|h|m|s|ms|us|ns))+`
	case "sig": // 64 bytes in standard base64
		pattern = `[A-Za-z0-9+/]{86}==`
	case "time": // RFC 3339 in UTC, spelled as it was hashed
		pattern = `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?Z`
	case "instant": // RFC 3339
		pattern = `[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?(Z|[+-][0-9]{2}:[0-9]{2})`
	case "version": // of a schema
		pattern = `[0-9]+\.[0-9]+\.[0-9]+`
	default:
		return "", false
	}
	if optional {
		return "^(" + pattern + ")?$", true
	}
	return "^(" + pattern + ")$", true
}
