"""The project itself: rules that no other tool checks.

    test_layers, test_rust_layers, test_rust_imports      which way imports go; who may use a clock
    test_house_style, test_glossary                       lengths and docstrings; words that were retired
    test_docs, test_docs_examples, test_docs_generated    pages name what exists, and examples run
    test_makefile, test_wheel                             what a developer runs, and a user installs
    test_waiting                                          the helper of all tests that wait

`checkout` lists the sources, for all of them.
"""
