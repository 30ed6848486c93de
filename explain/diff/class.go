package diff

// Class says what a span holds.
type Class uint8

// The classes.
const (
	Edit Class = iota
	Insertion
	Deletion
	Timestamp
	Date
	Counter
	ID
	HeaderLine
	GitStatus
	FileList
	KeyOrder
	JSONSpacing
	ToolOrder
	ListOrder
	ThinkBlock
	BOS
	WhiteSpace
	UserText
	ContentJSON
	Retokenized
)

// Remedy says what would keep a span from costing blocks.
type Remedy uint8

// The remedies.
const (
	// MoveLast: write it after all that is stable.
	MoveLast Remedy = iota
	// SameForm: both write it in one order or form.
	SameForm
)

var remedyWords = [...]string{"move last", "same form"}

func (r Remedy) String() string { return remedyWords[r] }

// Kind says whether a span shifts what follows it.
type Kind uint8

// The kinds.
const (
	// Replaced: both sides have as many tokens, so what follows keeps its place in
	// its blocks.
	Replaced Kind = iota
	// Resized: what follows shifts.
	Resized
	// Uncounted: there are no tokens.
	Uncounted
)

var kindWords = [...]string{"replaced", "resized", "uncounted"}

func (k Kind) String() string { return kindWords[k] }

// classes says of each class its name in output, how a sentence calls such a span (of an
// insertion or deletion up to who has it),
// the remedy, and whether it is remedied wherever it is: a free text is only where
// it is the first span.
var classes = [...]struct {
	name, phrase string
	remedy       Remedy
	volatile     bool
}{
	Edit:        {"edit", "an edited text", MoveLast, false},
	Insertion:   {"insertion", "a text that only", MoveLast, false},
	Deletion:    {"deletion", "a text that only", MoveLast, false},
	Timestamp:   {"timestamp", "a timestamp", MoveLast, true},
	Date:        {"date", "a date", MoveLast, true},
	Counter:     {"counter", "a number", MoveLast, true},
	ID:          {"id", "an identifier", MoveLast, true},
	HeaderLine:  {"header line", "a header line", MoveLast, true},
	GitStatus:   {"git status", "a git status", MoveLast, true},
	FileList:    {"file list", "a file list", MoveLast, true},
	KeyOrder:    {"json key order", "the same JSON in another key order", SameForm, true},
	JSONSpacing: {"json spacing", "the same JSON with other white space", SameForm, true},
	ToolOrder:   {"tool order", "the same tools in another order", SameForm, true},
	ListOrder:   {"list order", "the same items in another order", SameForm, true},
	ThinkBlock:  {"think block", "a think block that only one side has", SameForm, true},
	BOS:         {"bos", "the beginning-of-text token", SameForm, true},
	WhiteSpace:  {"white space", "white space", SameForm, true},
	UserText:    {"copied user text", "a copy of the user's latest message", MoveLast, true},
	ContentJSON: {"content as json", "the content list written as JSON text on one side", SameForm, true},
	Retokenized: {"same text, other tokens", "the same text in other tokens", SameForm, true},
}

func (c Class) String() string { return classes[c].name }
