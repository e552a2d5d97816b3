package openapi

// Info describes the whole surface.
type Info struct {
	Title       string
	Version     string // of the serving program
	Description string
	License     string // SPDX expression
	Problem     any    // zero value of the body of every refusal

	Enums map[string][]string // values of a member, by type and member ("Problem.code")
}

// ProblemType is the media type of every refusal.
const ProblemType = "application/problem+json"

// Media types of sequences. The schema describes one line, or the data of one frame.
const (
	LinesType  = "application/x-ndjson"
	EventsType = "text/event-stream"
)

// Route describes one operation.
type Route struct {
	ID       string // unique; words in camel case: getBalance
	Method   string
	Pattern  string   // "/registry/:v/payload", "/files/*path"
	Service  string   // its tag
	Scope    string   // required of a token; "" is public
	Scopes   []string // alternatives, of which a token needs one, instead of Scope
	Optional bool     // the configuration may permit some clients without a token
	Summary  string   // short description
	Doc      string   // further description
	Socket   bool     // over the admin socket only
	Admin    bool     // on TCP only if the configuration permits it

	Path    []Param // one for each parameter of the pattern
	Query   []Param
	Headers []Param // of the request, in addition to those of every request

	In         any      // zero value of the JSON body; nil: none
	InTypes    []string // media types of the body in addition to JSON, with the same structure
	InMedia    string   // media type of a body other than JSON; for LinesType, In is one line
	InOptional bool

	Answers  []Answer
	Problems []int // statuses of its refusals
}

// Param is a parameter of a path, a query or a header.
type Param struct {
	Name     string
	Doc      string
	Sample   any      // zero value of its type; nil: text
	Enum     []string // all permitted values
	Pattern  string   // regular expression of a text
	Min, Max uint64   // bounds of a number; 0: none
	Default  string   // value of an absent one, in the text of a query; "": none
	Required bool     // path parameters always are
}

// Answer describes one successful answer.
type Answer struct {
	Status  int
	Doc     string
	Type    string // media type; "": no body
	Body    any    // zero value of the body, or of one line of LinesType; nil: any bytes
	Events  []Event
	Headers []Param // of the answer, in addition to those of every answer
}

// Event describes one kind of frame of EventsType.
type Event struct {
	Name string
	Doc  string
	Body any // zero value of its data
}
