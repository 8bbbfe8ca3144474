package scenarios

// Cases returns all cases.
func Cases() []Case {
	var all []Case
	for _, some := range [][]Case{endCases(), handlerCases(), offsetCases(), memberCases(), defaultCases(), messageCases(), errorCases()} {
		all = append(all, some...)
	}
	return all
}
