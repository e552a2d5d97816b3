package record

import (
	"bytes"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	// MaxDescriptor is the most bytes of one canonical descriptor.
	MaxDescriptor = 32 << 10
	// MaxEndpoint is the most bytes of an endpoint.
	MaxEndpoint = 512
	// maxID is the most bytes of a descriptor id.
	maxID = 200
	// itemDepth is the deepest nesting of a descriptor: in a payload two levels enclose it.
	itemDepth = MaxDepth - 2
)

// Item is a validated descriptor in canonical bytes. Bytes must not be modified.
type Item struct {
	ID    string
	Bytes []byte
}

// descriptor holds the members of an item.
type descriptor struct {
	ID        string         `json:"id"`
	Kind      string         `json:"kind"`
	Endpoint  string         `json:"endpoint,omitzero"`
	Region    string         `json:"region,omitzero"`
	ExpiresAt string         `json:"expires_at,omitzero" format:"time"`
	Meta      jsontext.Value `json:"meta"`
}

var itemForm = formOf[descriptor]()

// ParseItem parses one descriptor in any spelling. It returns a *FieldError if it is wrong and
// ErrHardLimit if it is too large.
func ParseItem(raw []byte) (Item, error) {
	if len(raw) > 4*MaxDescriptor {
		return Item{}, tooLarge("descriptor", len(raw), MaxDescriptor)
	}
	canon, err := canonical(raw, itemDepth)
	if err != nil {
		return Item{}, err
	}
	return itemOf("", canon)
}

// MarshalJSON returns the canonical bytes.
func (it Item) MarshalJSON() ([]byte, error) { return it.Bytes, nil }

// UnmarshalJSON parses a descriptor as ParseItem does.
func (it *Item) UnmarshalJSON(raw []byte) (err error) {
	*it, err = ParseItem(bytes.Clone(raw))
	return err
}

// itemOf checks the canonical descriptor at path.
func itemOf(path string, canon []byte) (Item, error) {
	if len(canon) > MaxDescriptor {
		return Item{}, tooLarge("descriptor "+path, len(canon), MaxDescriptor)
	}
	var d descriptor
	f := itemForm.read(path, canon, &d)
	f.complete()
	if !validID(d.ID) {
		f.fail("id", "must match [a-z0-9][a-z0-9._:@/#-]{0,199}")
	}
	if !slices.Contains([]string{"node", "service", "region", "placement", "policy_pin"}, d.Kind) {
		f.fail("kind", "must be node, service, region, placement or policy_pin")
	}
	if len(d.Endpoint) > MaxEndpoint {
		f.fail("endpoint", "must be at most %d bytes", MaxEndpoint)
	}
	if !bytes.HasPrefix(d.Meta, []byte("{")) {
		f.fail("meta", "must be an object")
	}
	return Item{ID: d.ID, Bytes: canon}, f.done()
}

// validID reports whether s is a valid id of a descriptor. Ids are ASCII, so that every order of
// them is the same.
func validID(s string) bool {
	if len(s) == 0 || len(s) > maxID {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '_' || c == ':' || c == '@' || c == '/' || c == '#' || c == '-'):
		default:
			return false
		}
	}
	return true
}
