package template

// LimitSteps gives a template fewer steps than others have, so that tests of endless
// ones are quick.
func (t *Template) LimitSteps(n int) { t.steps = n }
