package openapi

import (
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// dialect is the JSON Schema that OpenAPI 3.1 is built on.
const dialect = "https://json-schema.org/draft/2020-12/schema"

// schema is one JSON Schema; the zero value allows anything.
type schema struct {
	Dialect     string             `json:"$schema,omitzero"`
	ID          string             `json:"$id,omitzero"`
	Ref         string             `json:"$ref,omitzero"`
	Title       string             `json:"title,omitzero"`
	Description string             `json:"description,omitzero"`
	Type        string             `json:"type,omitzero"`
	Format      string             `json:"format,omitzero"`
	Encoding    string             `json:"contentEncoding,omitzero"`
	Pattern     string             `json:"pattern,omitzero"`
	Enum        []string           `json:"enum,omitempty"`
	Minimum     *uint64            `json:"minimum,omitzero"`
	Maximum     *uint64            `json:"maximum,omitzero"`
	Items       *schema            `json:"items,omitzero"`
	Properties  properties         `json:"properties,omitempty"`
	Required    []string           `json:"required,omitempty"`
	Additional  any                `json:"additionalProperties,omitzero"` // false or *schema
	Defs        map[string]*schema `json:"$defs,omitempty"`
}

// properties are the members of an object in the order of their declaration.
type properties []property

type property struct {
	name   string
	schema *schema
}

// MarshalJSONTo writes an object.
func (ps properties) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, p := range ps {
		if err := e.WriteToken(jsontext.String(p.name)); err != nil {
			return err
		}
		if err := json.MarshalEncode(e, p.schema); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// marshal writes v with maps in the order of their keys.
func marshal(v any) ([]byte, error) { return json.Marshal(v, json.Deterministic(true)) }
