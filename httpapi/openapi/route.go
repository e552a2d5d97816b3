package openapi

// Info opens the document.
type Info struct {
	Title       string
	Version     string // of the program that serves it
	Description string
	License     string // SPDX expression
	Problem     any    // zero value of the body of every refusal

	Enums map[string][]string // values of members that only the program knows, by type and member: "Problem.code"
}

// ProblemType is the media type of every refusal.
const ProblemType = "application/problem+json"

// Media types whose body is a sequence: each line, or each frame's data, is described and not the whole.
const (
	LinesType  = "application/x-ndjson"
	EventsType = "text/event-stream"
)

// Route is one operation of the surface. HEAD comes with every GET.
type Route struct {
	Method   string
	Pattern  string   // "/registry/:v/payload", "/files/*path"
	Service  string   // its tag
	Scope    string   // that a token needs; "" is public
	Scopes   []string // of which a token needs one, instead of Scope
	Optional bool     // the scope is one way in; who the node is configured to let in needs none
	Summary  string   // what it does, in a few words
	Doc      string   // what else a caller must know
	Socket   bool     // over the admin socket only
	Admin    bool     // on TCP only where the node is configured so

	Path    []Param // one for each of the pattern
	Query   []Param
	Headers []Param // of the request, beside those of every request

	In         any      // zero value of the JSON body, nil: none
	InTypes    []string // media types of the body beside JSON, of the same shape
	InMedia    string   // the media type of a body that is no JSON; of LinesType In is one line
	InOptional bool

	Answers  []Answer
	Problems []int // statuses of its refusals
}

// Param is a parameter of a path, a query or a header.
type Param struct {
	Name     string
	Doc      string
	Sample   any      // zero value of its type, nil: text
	Enum     []string // all the values there are
	Pattern  string   // regular expression of a text
	Min, Max uint64   // bounds of a number, 0: none
	Required bool     // those of a path always are
}

// Number is an optional parameter that is a whole number from 1 to most.
func Number(name, doc string, most uint64) Param {
	return Param{Name: name, Doc: doc, Sample: uint64(0), Min: 1, Max: most}
}

// Answer is one way that an operation succeeds.
type Answer struct {
	Status  int
	Doc     string
	Type    string // media type, "": no body
	Body    any    // zero value of the body, or of one line of LinesType; nil: any bytes
	Events  []Event
	Headers []Param // of the answer, beside those of every answer
}

// Event is one kind of frame of EventsType.
type Event struct {
	Name string
	Doc  string
	Body any // zero value of what its data holds
}
