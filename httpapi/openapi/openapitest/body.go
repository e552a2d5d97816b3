package openapitest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"ronbox/httpapi/client"
)

// validate checks one JSON value against the schema at a pointer of the document.
func (c *Checker) validate(at string, raw []byte) error {
	if !jsontext.Value(raw).IsValid() {
		return errors.New("the body is not one strict JSON value")
	}
	s, err := c.schema(at)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func (c *Checker) schema(at string) (*jsonschema.Schema, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.schemas[at]; s != nil {
		return s, nil
	}
	s, err := c.compiler.Compile(documentURL + "#" + (&url.URL{Path: at}).EscapedPath())
	if err != nil {
		return nil, err
	}
	c.schemas[at] = s
	return s, nil
}

// lines checks every line of a sequence.
func (c *Checker) lines(at string, body []byte) error {
	n := 0
	for line := range bytes.Lines(body) {
		n++
		if !bytes.HasSuffix(line, []byte("\n")) {
			return fmt.Errorf("line %d has no end", n)
		}
		if err := c.validate(at, line); err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
	}
	return nil
}

// frames checks the data of every frame against the event that it is of. A last frame cut short is
// the transport's.
func (c *Checker) frames(at string, events any, body []byte) error {
	r := client.NewFrameReader(bytes.NewReader(body))
	for {
		f, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if member(events, f.Event) == nil {
			return fmt.Errorf("event %q is not among those of the stream", f.Event)
		}
		if err := c.validate(at+pointer(f.Event), f.Data); err != nil {
			return fmt.Errorf("event %s: %w", f.Event, err)
		}
	}
}
