package record

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// encode is the canonical form of a value whose tags name its members; nil, which no parser takes, of a text that is not UTF-8.
func encode(v any) []byte {
	raw, err := json.Marshal(v)
	doc := jsontext.Value(raw)
	if err != nil || doc.Format(jsontext.ReorderRawObjects(true)) != nil {
		return nil
	}
	return doc
}

// contents are what payloads and drafts say of descriptors and signers: items of a full set, put and remove of a delta.
type contents struct {
	Items     *[]jsontext.Value `json:"items,omitzero"`
	Put       *[]jsontext.Value `json:"put,omitzero"`
	Remove    *[]string         `json:"remove,omitzero"`
	SignerSet jsontext.Value    `json:"signer_set,omitzero"`
}

func contentsOf(full bool, put []Item, remove []string, set *SignerSet) (c contents) {
	items := make([]jsontext.Value, len(put))
	for i, it := range put {
		items[i] = it.Bytes
	}
	if full {
		c.Items = &items
	} else {
		c.Put, c.Remove = &items, &remove
	}
	if set != nil {
		c.SignerSet = set.Bytes()
	}
	return c
}
