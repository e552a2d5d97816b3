package obs

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
)

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
