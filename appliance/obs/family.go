package obs

import (
	"fmt"
	"slices"
)

// Type is what kind of metric a Family is.
type Type int

// The types of a Family.
const (
	Counter   Type = iota + 1 // only grows
	Gauge                     // goes up and down; pushed by Set or read at scrape
	Histogram                 // distribution over Buckets
)

// String is the name that the exposition format has for t.
func (t Type) String() string {
	switch t {
	case Counter:
		return "counter"
	case Gauge:
		return "gauge"
	case Histogram:
		return "histogram"
	}
	return fmt.Sprintf("type(%d)", int(t))
}

// Family is one metric name with all its series. Every series has the label "service", then Labels.
type Family struct {
	Name   string
	Help   string
	Type   Type
	Labels []string
	// Buckets are the upper bounds of a Histogram, ascending, in the unit of the name.
	Buckets []float64
	// ServiceBuckets replaces Buckets for the services it names.
	ServiceBuckets map[string][]float64
}

// sameShape says whether f and g may be one family. The help text of the first declaration stands.
func (f Family) sameShape(g Family) bool {
	if f.Type != g.Type || !slices.Equal(f.Labels, g.Labels) || !slices.Equal(f.Buckets, g.Buckets) || len(f.ServiceBuckets) != len(g.ServiceBuckets) {
		return false
	}
	for service, b := range f.ServiceBuckets {
		if !slices.Equal(b, g.ServiceBuckets[service]) {
			return false
		}
	}
	return true
}

// bucketsFor are the bounds that service uses.
func (f Family) bucketsFor(service string) []float64 {
	if b, ok := f.ServiceBuckets[service]; ok {
		return b
	}
	return f.Buckets
}

// check finds what only a wrong declaration can hold.
func (f Family) check() error {
	switch {
	case f.Name == "" || f.Help == "":
		return fmt.Errorf("family %q needs a name and a help text", f.Name)
	case f.Type != Counter && f.Type != Gauge && f.Type != Histogram:
		return fmt.Errorf("family %s has no type", f.Name)
	case slices.Contains(f.Labels, "service"):
		return fmt.Errorf("family %s lists the label service, which every family has", f.Name)
	case (f.Type == Histogram) != (len(f.Buckets) > 0):
		return fmt.Errorf("family %s: buckets belong to a histogram, and only there", f.Name)
	}
	return nil
}

// values orders label,value,… pairs as the family's labels are, service first. A label that is not given is "".
func (f Family) values(service string, pairs []string) ([]string, error) {
	if len(pairs)%2 != 0 {
		return nil, fmt.Errorf("family %s: odd label pairs %q", f.Name, pairs)
	}
	out := make([]string, 1+len(f.Labels))
	out[0] = service
	for i := 0; i < len(pairs); i += 2 {
		at := slices.Index(f.Labels, pairs[i])
		if at < 0 {
			return nil, fmt.Errorf("family %s has no label %q", f.Name, pairs[i])
		}
		out[1+at] = pairs[i+1]
	}
	return out, nil
}
