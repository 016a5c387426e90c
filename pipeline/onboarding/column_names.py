"""Names that label columns and text columns often have, in lowercase."""

# If a table has names of several groups, the first group wins.
LABEL_NAMES = (
    ("label", "labels"),
    ("target", "class", "category", "sentiment", "intent", "topic", "is_spam", "spam", "toxic"),
    ("stars", "rating", "score", "y"),
)
PAIR_NAMES = (
    ("premise", "hypothesis"), ("sentence1", "sentence2"), ("sentence_1", "sentence_2"), ("question1", "question2"),
    ("text1", "text2"), ("text_a", "text_b"), ("sentence_a", "sentence_b"), ("query", "passage"),
    ("question", "answer"),
)  # fmt: skip
TEXT_NAMES = (
    ("text", "sentence", "review", "content", "comment", "tweet", "message", "document"),
    ("body", "review_text", "reviewtext", "comment_text", "description", "question", "utterance", "query"),
    ("title", "headline", "subject"),
)
