package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/kvscope/kvscope/wire"
)

// voice makes up what somebody says: n tokens, or as few less as whole sentences
// allow, and one sentence at least.
type voice func(rng *rand.Rand, n int) []wire.Token

// marks are the tokens that a chat template puts around turns.
type marks struct {
	system, systemEnd, user, assistant, end []wire.Token
	// clock says what time it is, to a hundredth of a second.
	clock func(now wire.Time) []wire.Token
}

// vocabulary is how many numbers there are without words.
const vocabulary = 150_000

// numbers are what is said without a tokenizer, with the marks that Qwen's has.
var numbers = marks{
	user:      []wire.Token{151644, 872, 198},
	assistant: []wire.Token{151645, 198, 151644, 77091, 198},
	end:       []wire.Token{151645, 198},
	clock: func(now wire.Time) []wire.Token {
		const zero = 15 // a digit is a token
		out := []wire.Token{151644, 8948, 198, 5405, 882, 25}
		for _, n := range timeOfDay(now) {
			out = append(out, wire.Token(zero+n/10), wire.Token(zero+n%10))
		}
		return out
	},
}

// timeOfDay gives hours, minutes, seconds and hundredths.
func timeOfDay(now wire.Time) [4]int {
	const day = 24 * 60 * 60 * 1000
	ms := int(now/1e6) % day
	return [4]int{ms / 3_600_000, ms / 60_000 % 60, ms / 1000 % 60, ms % 1000 / 10}
}

func newVoice(encode func(string) []wire.Token) (voice, *marks) {
	if encode == nil {
		return func(rng *rand.Rand, n int) []wire.Token {
			out := make([]wire.Token, n)
			for i := range out {
				out[i] = wire.Token(rng.IntN(vocabulary))
			}
			return out
		}, &numbers
	}
	say := func(rng *rand.Rand, n int) []wire.Token {
		out := encode(sentence(rng))
		for {
			more := encode(" " + sentence(rng))
			if len(out)+len(more) > n {
				return out
			}
			out = append(out, more...)
		}
	}
	return say, &marks{
		system: encode("<|im_start|>system\n"), systemEnd: encode("<|im_end|>\n"),
		user: encode("<|im_start|>user\n"), assistant: encode("<|im_end|>\n<|im_start|>assistant\n"), end: encode("<|im_end|>\n"),
		clock: func(now wire.Time) []wire.Token {
			t := timeOfDay(now)
			return encode(fmt.Sprintf("Current time: %02d:%02d:%02d.%02d\n", t[0], t[1], t[2], t[3]))
		},
	}
}

// A sentence is one of each.
var (
	openings = []string{
		"Before you change anything,", "When a customer asks,", "If the answer is not in the notes,", "On weekends", "Since the last release",
		"As a rule,", "For orders from abroad,", "Unless somebody objects,", "After the second reminder,", "In the evening",
	}
	subjects = []string{
		"the night shift", "our warehouse", "the billing service", "every new ticket", "the parcel from Lisbon", "the review team",
		"the garden centre", "the harbour office", "a second reader", "the refund desk",
	}
	verbs = []string{
		"checks", "forwards", "keeps", "explains", "postpones", "repeats", "compares", "collects", "renames", "signs",
	}
	objects = []string{
		"the list of open questions", "all invoices above two hundred euros", "a short summary of the case", "the map of the old town",
		"three copies of the contract", "the weather report for the coast", "the recipe with less sugar", "the numbers of last month",
		"any photo that was sent along", "the keys of the blue door",
	}
	endings = []string{
		"and says so.", "within two working days.", "without asking twice.", "in plain words.", "and files it under its date.",
		"until noon.", "as the handbook has it.", "if there is time.", "together with a colleague.", "and leaves the rest as it is.",
	}
)

func sentence(rng *rand.Rand) string {
	pick := func(words []string) string { return words[rng.IntN(len(words))] }
	return pick(openings) + " " + pick(subjects) + " " + pick(verbs) + " " + pick(objects) + " " + pick(endings)
}
