package scenarios

// Cases returns all cases.
func Cases() []Case {
	var all []Case
	for _, some := range [][]Case{endCases(), handlerCases(), offsetCases(), memberCases(), messageCases(), errorCases()} {
		all = append(all, some...)
	}
	return all
}
