//! The default text.

/// Common given names, without accents.
pub(crate) const NAMES: &str = "
ada adam adele adrian agnes aidan alan albert alexa alexander alfred alice alicia alina alma amanda amber
amelia amy ana andrea andrew angela anita ann anna anne annika anthony anton april ariel arthur astrid
audrey aurora austin ava barbara beatrice becca ben benjamin bernard bertha beth bianca boris brandon
brenda brian bridget bruno caleb camilla carl carla carmen carol caroline catherine cecilia celia charles
charlotte chloe chris christian christina claire clara claude claudia colin conrad cora cynthia daisy
dana daniel daphne david deborah denise dennis derek diana diego dina dominic dora doris dorothy dylan
edgar edith edmund edward eileen elaine eleanor elena eli elias elisa elise elizabeth ella ellen elliot
elsa emil emilia emily emma eric erica ernest esther ethan eugene eva evan evelyn faith felicia felix
fiona flora florence frances francis frank freda frederick gabriel gemma george gerald gilbert gina
gloria gordon grace grant greta gustav guy hannah harold harriet harry hazel heather hector heidi helen
helena henry herbert hilda holly howard hugo ian ida ines ingrid irene iris isaac isabel isabella ivan
ivy jack jacob james jane janet jason jasper jean jennifer jeremy jessica joan joanna joel john jonas
jonathan jordan joseph josephine joshua joy judith julia julian juliet june karen karl kate katherine
keith kelly kenneth kevin klara kurt laura lauren laurence lea leah lena leo leon leonard leonora lewis
liam lilian lily linda lisa lloyd logan lola lorenzo louis louisa lucas lucia lucy luis luke lydia mabel
madeline maggie marcel marcus margaret maria marian marie marina mario marion mark martha martin mary
mason mathilda matthew maureen maurice max maya megan melissa michael michelle mila miles miriam molly
monica nadia naomi natalie nathan neil nell nicholas nicole nina noah nora norman oliver olivia oscar
otto owen pamela patricia patrick paul paula pauline penelope peter petra philip phoebe rachel ralph
raymond rebecca regina rene richard rita robert robin roger roland rosa rose ruby rupert ruth ryan
samuel sandra sara sebastian selma sheila silvia simon sonia sophia stella stephen susan sylvia tara
teresa theodor thomas tobias tom ursula valerie vera veronica victor victoria vincent viola violet
virginia walter wanda wendy werner william wilma xavier yvonne zoe
";
