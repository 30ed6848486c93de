package template

// expr is an expression; the types below are all there are.
type expr any

type (
	literal struct{ v value }
	nameRef struct{ name string }
	attrRef struct {
		of   expr
		name string
	}
	itemRef struct{ of, key expr }
	slicing struct{ from, to, step expr } // nil where left out
	call    struct {
		fn expr
		argList
	}
	// filtering without an input, nil, takes a block's text.
	filtering struct {
		in   expr
		name string
		argList
	}
	testing struct {
		in   expr
		name string
		argList
	}
	unary struct {
		op string
		of expr
	}
	binary struct {
		op   string
		l, r expr
	}
	// comparing is a chain as in Python: a < b < c.
	comparing struct {
		first expr
		rest  []comparison
	}
	comparison struct {
		op string
		of expr
	}
	choice    struct{ test, yes, no expr } // no is nil where left out
	joining   struct{ parts []expr }
	listing   struct{ items []expr }
	tupling   struct{ items []expr }
	dictating struct{ keys, values []expr }
)

type argList struct {
	args []expr
	kw   []kwExpr
}

type kwExpr struct {
	name string
	of   expr
}

// target is what is assigned to: a name, a namespace's attribute, or a tuple.
type target struct {
	name, attr string
	tuple      []target
}

// stmt is a statement; the types below are all there are.
type stmt any

// scope is a body with variables of its own.
type scope struct {
	body []stmt
	// hidden are the variables of the input that the scope has not, see symbols.
	hidden []string
}

type (
	text  struct{ s str }
	print struct {
		line int
		of   expr
	}
	branch struct {
		line    int
		test    expr
		yes, no []stmt
	}
	loopStmt struct {
		line       int
		to         target
		over, test expr
		body, none *scope
	}
	assign struct {
		line int
		to   target
		of   expr
	}
	assignBlock struct {
		line    int
		to      target
		filters []filtering
		body    *scope
	}
	filterBlock struct {
		line    int
		filters []filtering
		body    *scope
	}
	macroDef struct {
		line int
		macroBody
	}
	callBlock struct {
		line int
		call call
		body macroBody
	}
	with struct {
		line int
		to   []target
		of   []expr
		body *scope
	}
	jump struct{ how error } // errBreak or errContinue
)

// macroBody is what a macro and a call block share.
type macroBody struct {
	name     string
	params   []string
	defaults []expr // of the last parameters
	body     *scope
	// What of the special names its body uses.
	caller, varargs, kwargs bool
}
