//! A small language in which the pronoun *it* refers to a noun.
//!
//! A sentence states who did what to which thing, and then what happened to *it*:
//!
//! ```text
//! near the violin the chef prepared a splendid meal and it was served with wine .
//! ```
//!
//! Things are of six kinds, and the words after *it* depend on the kind: a meal is served or tastes
//! wonderful, a letter is read. The other words of the sentence are independent of the kind, and
//! nouns of other kinds occur before and after. So the model can predict the words after *it* only
//! from the noun that *it* refers to.
//!
//! Sentences without *it* state the same directly ("the meal was served with wine"), or end with
//! what a person did ("and the baker slept"). The first two nouns of each kind, "meal" among them,
//! are held out: in training they occur only in sentences without *it*.

use retrograd::prelude::Rng;

/// A kind of thing: its nouns, and the phrases that follow them.
pub struct Kind {
    /// The words after "it was": "served with wine".
    pub was: [&'static str; 3],
    /// The words after "it" without "was": "tasted wonderful".
    pub did: [&'static str; 2],
    /// An adjective of this kind alone. It does not occur in generated sentences with the pronoun.
    adjective: &'static str,
    /// 24 nouns.
    nouns: &'static str,
}

impl Kind {
    fn nouns(&self) -> Vec<&'static str> {
        self.nouns.split(' ').collect()
    }
}

/// The number of held-out nouns of each kind: in training, *it* does not refer to the first
/// `HELD_OUT` nouns.
pub const HELD_OUT: usize = 2;

pub const KINDS: [Kind; 6] = [
    Kind {
        was: ["served", "with", "wine"],
        did: ["tasted", "wonderful"],
        adjective: "delicious",
        nouns: "meal stew soup pie cake salad roast pudding bread pasta curry pancake porridge \
                sandwich biscuit cheese sausage dumpling goulash risotto trifle muffin waffle tart",
    },
    Kind {
        was: ["read", "with", "care"],
        did: ["told", "everything"],
        adjective: "touching",
        nouns: "letter poem novel story report diary ballad fable speech manuscript book note sermon \
                chronicle memoir sonnet saga leaflet telegram pamphlet script verdict riddle legend",
    },
    Kind {
        was: ["played", "with", "joy"],
        did: ["sounded", "lovely"],
        adjective: "mellow",
        nouns: "violin flute guitar cello piano trumpet drum harp lute banjo fiddle trombone \
                clarinet tuba bassoon bugle cornet recorder mandolin zither cymbal saxophone \
                harmonica bagpipe",
    },
    Kind {
        was: ["worn", "with", "pride"],
        did: ["fitted", "perfectly"],
        adjective: "woollen",
        nouns: "coat dress scarf jacket shirt cloak hat gown sweater robe vest suit skirt blouse \
                bonnet kimono tunic shawl cap cardigan poncho sari kilt mitten",
    },
    Kind {
        was: ["watered", "with", "patience"],
        did: ["bloomed", "early"],
        adjective: "fragrant",
        nouns: "rose tulip lily daisy poppy peony lilac begonia dahlia geranium jasmine magnolia \
                primrose crocus snowdrop carnation marigold petunia hyacinth lavender camellia \
                gardenia foxglove bluebell",
    },
    Kind {
        was: ["driven", "with", "caution"],
        did: ["arrived", "late"],
        adjective: "speedy",
        nouns: "wagon carriage truck tractor van bus lorry cab tram coach cart sledge bicycle \
                scooter train ferry canoe yacht glider rickshaw barge limousine chariot raft",
    },
];

const PEOPLE: [&str; 12] = [
    "chef", "baker", "tailor", "gardener", "teacher", "doctor", "farmer", "pilot", "poet",
    "merchant", "sailor", "painter",
];
const VERBS: [&str; 8] =
    ["prepared", "bought", "found", "brought", "chose", "praised", "finished", "borrowed"];
const DEEDS: [&str; 4] = ["smiled", "slept", "laughed", "left"];
const ADJECTIVES: [&str; 8] =
    ["splendid", "small", "new", "strange", "fine", "modest", "beautiful", "heavy"];
const OPENINGS: [&[&str]; 5] = [&[], &[], &["yesterday"], &["at", "noon"], &["late", "in", "may"]];
const PLACES: [&str; 5] = ["near", "beside", "behind", "under", "before"];
const OTHER_WORDS: [&str; 6] = [".", "the", "a", "and", "it", "was"];

/// The sentence of the tutorials.
const OURS: &str = "the chef prepared a delicious meal and it was served with wine";

/// The same sentence with nouns of other kinds.
const WITH_OTHERS: &str = "near the violin the chef prepared a delicious meal beside the coat \
                           and it was served with wine";
/// A sentence with a meal in which *it* refers to another noun.
const LETTER: &str = "near the meal the chef prepared a splendid letter beside the coat \
                      and it was read with care";

/// An upper bound of the number of words of a sentence, its full stop included. It is the context of
/// the model.
pub const LONGEST: usize = 36;

/// A sentence with *it*, and its properties.
pub struct Sentence {
    pub words: Vec<&'static str>,
    /// The position of *it*.
    pub it: usize,
    /// The position of the noun that *it* refers to.
    pub noun: usize,
    /// The kind of that noun.
    pub kind: usize,
}

impl Sentence {
    /// The given sentence, in which *it* refers to `noun`.
    fn about(noun: &str, text: &'static str) -> Sentence {
        let words: Vec<_> = text.split(' ').collect();
        let place = |w| words.iter().position(|&word| word == w).expect("a word of the sentence");
        let kind = KINDS.iter().position(|k| k.nouns().contains(&noun)).expect("a noun");
        Sentence { it: place("it"), noun: place(noun), kind, words }
    }
}

/// The sentences whose attention weights are shown: the one of the tutorials, the same with nouns of
/// other kinds, and one with a meal in which *it* refers to another noun.
pub fn examples() -> [Sentence; 3] {
    [
        Sentence::about("meal", OURS),
        Sentence::about("meal", WITH_OTHERS),
        Sentence::about("letter", LETTER),
    ]
}

/// A random element.
fn choose<T: Copy>(of: &[T], rng: &mut Rng) -> T {
    of[rng.below(of.len())]
}

/// The set of nouns from which the noun that *it* refers to is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Nouns {
    Training,
    HeldOut,
}

/// A sentence with *it*: `[when] [places] who did what [places] and it ..`, with up to four other
/// things, of other kinds.
pub fn with_it(nouns: Nouns, rng: &mut Rng) -> Sentence {
    let kind = rng.below(KINDS.len());
    let all = KINDS[kind].nouns();
    let noun = match nouns {
        Nouns::Training => choose(&all[HELD_OUT..], rng),
        Nouns::HeldOut => choose(&all[..HELD_OUT], rng),
    };
    let (mut words, noun) = scene(kind, noun, HELD_OUT, rng);
    words.extend(["and", "it"]);
    let it = words.len() - 1;
    happens(&mut words, &KINDS[kind], rng);
    words.push(".");
    Sentence { words, it, noun, kind }
}

/// A sentence without *it* and with any nouns: `[when] [places] who did what [places] and who did`.
fn without_it(rng: &mut Rng) -> Vec<&'static str> {
    let kind = rng.below(KINDS.len());
    let noun = choose(&KINDS[kind].nouns(), rng);
    let (mut words, _) = scene(kind, noun, 0, rng);
    words.push("and");
    person(&mut words, rng);
    words.extend([choose(&DEEDS, rng), "."]);
    words
}

/// A sentence about a thing without a pronoun: "a meal tasted wonderful".
fn directly(rng: &mut Rng) -> Vec<&'static str> {
    let kind = &KINDS[rng.below(KINDS.len())];
    let mut words = Vec::new();
    let mut adjectives = ADJECTIVES.to_vec();
    adjectives.extend([kind.adjective; 4]);
    thing(&mut words, choose(&kind.nouns(), rng), &adjectives, rng);
    happens(&mut words, kind, rng);
    words.push(".");
    words
}

/// A random training sentence.
pub fn training_sentence(rng: &mut Rng) -> Vec<&'static str> {
    match rng.below(4) {
        0 => directly(rng),
        1 => without_it(rng),
        _ => with_it(Nouns::Training, rng).words,
    }
}

/// "at noon near a violin the chef prepared a splendid meal beside the coat", with other things
/// from `nouns[from..]` of other kinds. Also returns the position of the noun.
fn scene(
    kind: usize,
    noun: &'static str,
    from: usize,
    rng: &mut Rng,
) -> (Vec<&'static str>, usize) {
    let mut words = choose(&OPENINGS, rng).to_vec();
    let places = |words: &mut Vec<_>, rng: &mut Rng| {
        for _ in 0..rng.below(3) {
            let other = (kind + 1 + rng.below(KINDS.len() - 1)) % KINDS.len();
            words.push(choose(&PLACES, rng));
            thing(words, choose(&KINDS[other].nouns()[from..], rng), &ADJECTIVES, rng);
        }
    };
    places(&mut words, rng);
    person(&mut words, rng);
    words.push(choose(&VERBS, rng));
    let noun = thing(&mut words, noun, &ADJECTIVES, rng);
    places(&mut words, rng);
    (words, noun)
}

/// "the chef", with or without an adjective.
fn person(words: &mut Vec<&'static str>, rng: &mut Rng) {
    words.push("the");
    if rng.below(2) == 0 {
        words.push(choose(&ADJECTIVES, rng));
    }
    words.push(choose(&PEOPLE, rng));
}

/// "a delicious meal", with or without the adjective. Returns the position of the noun.
fn thing(
    words: &mut Vec<&'static str>,
    noun: &'static str,
    adjectives: &[&'static str],
    rng: &mut Rng,
) -> usize {
    words.push(choose(&["the", "a"], rng));
    if rng.below(2) == 0 {
        words.push(choose(adjectives, rng));
    }
    words.push(noun);
    words.len() - 1
}

/// "was served with wine" or "tasted wonderful"
fn happens(words: &mut Vec<&'static str>, kind: &Kind, rng: &mut Rng) {
    if rng.below(2) == 0 {
        words.push("was");
        words.extend(kind.was);
    } else {
        words.extend(kind.did);
    }
}

/// All words in alphabetical order; a token is an index into them.
pub struct Vocabulary(Vec<&'static str>);

impl Vocabulary {
    pub fn new() -> Vocabulary {
        let lists: [&[&str]; 7] =
            [&OTHER_WORDS, &PEOPLE, &VERBS, &DEEDS, &ADJECTIVES, &OPENINGS.concat(), &PLACES];
        let mut words = lists.concat();
        for kind in &KINDS {
            words.extend(kind.nouns());
            words.extend(kind.was);
            words.extend(kind.did);
            words.push(kind.adjective);
        }
        words.sort_unstable();
        words.dedup();
        Vocabulary(words)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn encode(&self, word: &str) -> i64 {
        self.0.binary_search(&word).expect("a word of the language") as i64
    }

    pub fn word(&self, id: i64) -> &'static str {
        self.0[id as usize]
    }
}
